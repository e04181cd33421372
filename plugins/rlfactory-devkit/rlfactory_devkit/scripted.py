"""A sampler without a model, for tests of a chat format or of an engine's parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlfactory_core.protocols import ChatFormat
from rlfactory_core.types import SampledTokens, SamplingParams


class ScriptedSampler:
    """A `Sampler` that follows a script.

    It also checks its caller: within a session, a call's ids have to begin with the last call's ids and its answer.

    Args:
        script: the texts of the turns, the same in every session, or a function of session and turn number.
        chat: encodes the texts, and has the stop token that ends each of them.
        logprob: the log-prob of every token.
    """

    def __init__(
        self, script: Sequence[str] | Callable[[str, int], str], chat: ChatFormat, *, logprob: float = -0.5
    ) -> None:
        self._script, self._chat, self._logprob = script, chat, logprob
        self._contexts: dict[str, tuple[int, ...]] = {}
        self._turns: dict[str, int] = {}
        self.params: list[SamplingParams] = []  # of every call, in order
        self.released: list[str] = []  # sessions, in order

    async def sample(self, ids: Sequence[int], params: SamplingParams, *, session: str) -> SampledTokens:
        """The script's next text, truncated at ``max_tokens``."""
        known = self._contexts.get(session, ())
        if tuple(ids[: len(known)]) != known:
            raise AssertionError(f"session {session!r}: the ids do not begin with those of its last call and answer")
        turn = self._turns.get(session, 0)
        self._turns[session] = turn + 1
        self.params.append(params)
        text = self._script(session, turn) if callable(self._script) else self._script[turn]
        whole = (*self._chat.encode(text), self._chat.stop_token_ids[0])
        kept = whole[: params.max_tokens]
        self._contexts[session] = (*ids, *kept)
        return SampledTokens(kept, (self._logprob,) * len(kept), "stop" if kept == whole else "length")

    async def release(self, session: str) -> None:
        self._contexts.pop(session, None)
        self._turns.pop(session, None)
        self.released.append(session)
