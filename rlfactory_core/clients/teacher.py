"""A teacher for on-policy distillation behind a server that gives the log-probs of a prompt's tokens, such as vLLM's.

The request is a completion with token ids as its prompt and ``prompt_logprobs: 0``. In the answer ``prompt_logprobs``
has, for each token but the first, a mapping from its id to its log-prob and its text. It was tried with vLLM 0.28, and
vLLM 0.24 has the same form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlfactory_core.clients.openai import OpenAIClient
from rlfactory_core.errors import BackendError, ConfigError
from rlfactory_core.types import TrainSequence
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

    async def open(self, tokenizer: Any, max_tokens: int) -> None:
        """Ask for the log-probs of some tokens.

        Args:
            tokenizer: of the model that is trained.
            max_tokens: the most of a sequence.

        Raises:
            BackendError: the server does not answer, or gives no log-probs of a prompt.
            ConfigError: its vocabulary is another one, or its context is shorter than a sequence.
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
        await self._compare(tokenizer, min(PROBED, max_tokens))

    async def score(self, sequences: Sequence[TrainSequence]) -> Sequence[Sequence[float]]:
        found = await gather_all(self._prompt(each.ids) for each in sequences)
        return [
            [float(token["logprob"]) for token, own in zip(tokens, each.loss_mask, strict=True) if own]
            for each, tokens in zip(sequences, found, strict=True)
        ]

    async def close(self) -> None:
        await self._client.close()

    async def _prompt(self, ids: Sequence[int]) -> list[Mapping[str, Any]]:
        """What the server knows of each token; of the first nothing."""
        body = {"model": self._client.model, "prompt": list(ids), "max_tokens": 1, "temperature": 0.0}
        body["prompt_logprobs"] = 0  # of the prompt's tokens, and of no others

        def read(data: Any) -> list[Mapping[str, Any]]:
            try:
                rows = data["choices"][0]["prompt_logprobs"]
                found = [row[str(number)] for number, row in zip(ids[1:], rows[1:], strict=True)]
                if all(isinstance(each["logprob"], (int, float)) for each in found):
                    return [{}, *found]
            except (KeyError, IndexError, TypeError, ValueError):
                pass
            raise ValueError("expected `prompt_logprobs` with one entry for each token, as vLLM's server gives them")

        found = await self._client.ask("/completions", body, read, what="log-probs of the prompt")
        if found is None:
            raise BackendError(f"{self._client.base_url} takes no prompt of {len(ids)} tokens: its context is shorter.")
        return found

    async def _compare(self, tokenizer: Any, most: int) -> None:
        """Compare the texts of tokens over the whole vocabulary, with those that were added to it at its end."""
        known = sorted(tokenizer.get_vocab().values())
        added = sorted(tokenizer.get_added_vocab().values())[: most // 2]
        spread = known[:: max(1, -(-len(known) // (most - len(added))))]
        ids = [known[0], *dict.fromkeys([*spread, *added])]
        refused = f"train.teacher={self._client.base_url}: its tokenizer is another one than that of the model"
        advice = (
            "A teacher judges the very tokens that the model samples, so it has to have them all: choose one of the "
            "same family, or train on its traces (train.method=sft)."
        )
        try:
            found = await self._prompt(ids)
        except BackendError as error:
            if error.status == 400 and "vocabulary" in str(error):
                raise ConfigError(f"{refused}: {error} {advice}") from error
            raise
        for number, token in list(zip(ids, found, strict=True))[1:]:
            here, there = tokenizer.decode([number]), token.get("decoded_token")
            if there is None:
                raise BackendError(
                    f"{self._client.base_url} does not say which tokens its log-probs are of, so the tokenizers cannot "
                    "be compared. Start it with its tokenizer (vLLM: without --skip-tokenizer-init)."
                )
            if _UNREADABLE not in here + there and here.strip() != there.strip():
                raise ConfigError(
                    f"{refused}: token {number} is {here!r} for the model and {there!r} for the teacher. {advice}"
                )
