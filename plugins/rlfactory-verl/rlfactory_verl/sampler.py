"""A `protocols.Sampler` whose tokens come from verl's inference servers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from rlfactory_core.errors import BackendError
from rlfactory_core.images import picture
from rlfactory_core.types import SampledTokens, SamplingParams


class ServerSampler:
    """Samples one trajectory on the servers: takes token ids and gives token ids.

    Args:
        servers: verl's ``LLMServerClient``; it sends all turns of a session to one server, whose cache has their
            prefix.
        deadline_s: for one turn; verl itself would wait forever.
    """

    def __init__(self, servers: Any, deadline_s: float) -> None:
        self._servers, self._deadline_s = servers, deadline_s
        self.oldest: int | None = None  # the first and the last version of the weights in this trajectory;
        self.newest: int | None = None  # in the asynchronous modes the weights may change within a turn

    async def sample(self, ids: Sequence[int], params: SamplingParams, *, session: str) -> SampledTokens:
        """See `protocols.Sampler`. The seed is not passed on: vLLM would sample each seeded row by itself.

        Raises:
            BackendError: no answer within the deadline, or the server failed.
            ModelError: an image is gone from the cache.
        """
        shown = {"image_data": [picture(name) for name in params.images]} if params.images else {}
        asked = {
            "max_tokens": params.max_tokens,
            "temperature": params.temperature,
            "top_p": params.top_p,
            "top_k": -1,
            "stop_token_ids": list(params.stop_token_ids),
            "logprobs": True,
        }
        generating = self._servers.generate(request_id=session, prompt_ids=list(ids), sampling_params=asked, **shown)
        try:
            output = await asyncio.wait_for(generating, self._deadline_s)
        except TimeoutError:
            raise BackendError(f"no tokens from vLLM within {self._deadline_s:g} s") from None
        except Exception as error:  # Ray wraps errors of the server's process
            cause = getattr(error, "cause", None) or error
            last = (str(cause).strip().splitlines() or [""])[-1]
            raise BackendError(f"vLLM failed: {type(cause).__name__}: {last}") from error
        token_ids = tuple(output.token_ids)
        if not token_ids:
            raise BackendError(f"vLLM gave no tokens (stop reason {output.stop_reason!r})")
        oldest = output.extra_fields.get("min_global_steps")
        newest = output.extra_fields.get("max_global_steps")
        self.oldest = oldest if self.oldest is None else self.oldest
        self.newest = newest if newest is not None else self.newest
        stopped = token_ids[-1] in params.stop_token_ids
        return SampledTokens(token_ids, tuple(output.log_probs), "stop" if stopped else "length", oldest or 0)

    async def release(self, session: str) -> None:
        """Does nothing: the servers have no sessions, and their prefix cache evicts entries by itself."""
