"""A teacher for on-policy distillation behind a server that gives the log-probs of a prompt's tokens, such as vLLM's.

The request is a completion with token ids as its prompt and ``prompt_logprobs: K``. In the answer ``prompt_logprobs``
has, for each token but the first, a mapping from its id, and from the K likeliest ids, to log-probs and texts. It was
tried with vLLM 0.28, and vLLM 0.24 has the same form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlfactory_core.clients.openai import OpenAIClient
from rlfactory_core.errors import BackendError, ConfigError
from rlfactory_core.types import TaughtToken, TrainSequence
from rlfactory_core.utils.aio import gather_all

__all__ = ["ServerTeacher"]

PROBED = 512  # tokens whose texts are compared at the start
_UNREADABLE = "\ufffd"  # in the text of a token that is a part of a character


class ServerTeacher:
    """See `engines.base.Teacher`; ``await open()`` before.

    Args:
        address: such as ``http://127.0.0.1:8000/v1``, or ``…/v1#NAME`` for one of several models.
        limits: as for `OpenAIClient`.
    """

    def __init__(self, address: str, **limits: Any) -> None:
        url, _, name = address.partition("#")
        self._client = OpenAIClient(url, name or None, **limits)
        self._vocabulary = 0  # ids that the trained model knows

    async def open(self, tokenizer: Any, max_tokens: int, likely: int = 0) -> None:
        """Ask for the log-probs of some tokens.

        Args:
            tokenizer: of the model that is trained.
            max_tokens: the most of a sequence.
            likely: as `score` will ask for.

        Raises:
            BackendError: the server does not answer, or gives no log-probs of a prompt.
            ConfigError: its vocabulary is another one, its context is shorter than a sequence, or it names fewer ids.
            UsageError: it serves several models and none is named.
        """
        client = self._client
        await client.open(probe=False, choose="in train.teacher, as ADDRESS#MODEL")
        limit = client.description.get("max_model_len")
        if isinstance(limit, int) and limit <= max_tokens:
            raise ConfigError(
                f"train.teacher={client.base_url}: its context is {limit} tokens, and a trajectory may have "
                f"rollout.max_tokens={max_tokens} and one more. Start the server with a longer context, or lower that."
            )
        await self._compare(tokenizer, min(PROBED, max_tokens), likely)

    async def score(self, sequences: Sequence[TrainSequence], likely: int = 0) -> Sequence[Sequence[TaughtToken]]:
        found = await gather_all(self._prompt(each.ids, likely) for each in sequences)
        return [
            [
                self._taught(row[str(token)], row, likely)
                for token, row, own in zip(each.ids, rows, each.loss_mask, strict=True)
                if own
            ]
            for each, rows in zip(sequences, found, strict=True)
        ]

    async def close(self) -> None:
        await self._client.close()

    def _taught(self, token: Mapping[str, Any], row: Mapping[str, Any], likely: int) -> TaughtToken:
        """Without ids that the trained model does not know."""
        known = ((int(number), float(each["logprob"])) for number, each in row.items())
        best = sorted((item for item in known if item[0] < self._vocabulary), key=lambda item: -item[1])[:likely]
        return TaughtToken(float(token["logprob"]), tuple(id_ for id_, _ in best), tuple(value for _, value in best))

    async def _prompt(self, ids: Sequence[int], likely: int = 0) -> list[Mapping[str, Any]]:
        """What the server knows of each token and of the likeliest ones in its place, by id; of the first nothing."""
        body = {"model": self._client.model, "prompt": list(ids), "max_tokens": 1, "temperature": 0.0}
        body["prompt_logprobs"] = likely

        def read(data: Any) -> list[Mapping[str, Any]]:
            try:
                rows = data["choices"][0]["prompt_logprobs"]
                complete = all(
                    str(number) in row and len(row) >= likely for number, row in zip(ids[1:], rows[1:], strict=True)
                )
                if complete and all(isinstance(x["logprob"], (int, float)) for row in rows[1:] for x in row.values()):
                    return [{}, *rows[1:]]
            except (KeyError, IndexError, TypeError, ValueError):
                pass
            raise ValueError("expected `prompt_logprobs` with one entry for each token, as vLLM's server gives them")

        found = await self._client.ask("/completions", body, read, what="log-probs of the prompt")
        if found is None:
            raise BackendError(f"{self._client.base_url} takes no prompt of {len(ids)} tokens: its context is shorter.")
        return found

    async def _compare(self, tokenizer: Any, most: int, likely: int) -> None:
        """Compare the texts of tokens over the whole vocabulary, with those that were added to it at its end."""
        known = sorted(tokenizer.get_vocab().values())
        self._vocabulary = 1 + known[-1]
        added = sorted(tokenizer.get_added_vocab().values())[: most // 2]
        spread = known[:: max(1, -(-len(known) // (most - len(added))))]
        ids = [known[0], *dict.fromkeys([*spread, *added])]
        refused = f"train.teacher={self._client.base_url}: its tokenizer is another one than that of the model"
        advice = (
            "A teacher judges the very tokens that the model samples, so it has to have them all: choose one of the "
            "same family, or train on its traces (train.method=sft)."
        )
        try:
            found = await self._prompt(ids, likely)
        except BackendError as error:
            if error.status == 400 and "vocabulary" in str(error):
                raise ConfigError(f"{refused}: {error} {advice}") from error
            if error.status == 400 and likely:
                raise ConfigError(
                    f"train.teacher={self._client.base_url} does not name {likely} likely tokens: {error} Start it "
                    f"with a higher limit (vLLM: --max-logprobs {likely}), or lower train.teacher_top; 0 needs none."
                ) from error
            raise
        for number, row in list(zip(ids, found, strict=True))[1:]:
            here, there = tokenizer.decode([number]), row[str(number)].get("decoded_token")
            if there is None:
                raise BackendError(
                    f"{self._client.base_url} does not say which tokens its log-probs are of, so the tokenizers cannot "
                    "be compared. Start it with its tokenizer (vLLM: without --skip-tokenizer-init)."
                )
            if _UNREADABLE not in here + there and here.strip() != there.strip():
                raise ConfigError(
                    f"{refused}: token {number} is {here!r} for the model and {there!r} for the teacher. {advice}"
                )
