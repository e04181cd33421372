"""All servers of the judge's model: the choice of a server for each request, and the pauses of failing servers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import count

from rlfactory_core.errors import BackendError, UsageError
from rlfactory_judge.contract import UnavailableError
from rlfactory_judge.options import JudgeOptions
from rlfactory_judge.service.endpoint import Endpoint
from rlfactory_judge.service.timing import Timing

Say = Callable[[str], None]


class Endpoints:
    """One or many addresses of one model.

    Raises:
        UsageError: an address is invalid.
    """

    def __init__(self, urls: Sequence[str], model: str | None, options: JudgeOptions, timing: Timing) -> None:
        self._options, self._timing, self._model = options, timing, model
        self._all = [Endpoint(url, model, options, timing) for url in dict.fromkeys(urls)]
        self._reviving: dict[str, asyncio.Task[None]] = {}
        self._turn = count()
        self._last_used: dict[str, int] = {}

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(endpoint.url for endpoint in self._all)

    @property
    def dead(self) -> tuple[str, ...]:
        return tuple(endpoint.url for endpoint in self._all if not endpoint.alive)

    @property
    def answered(self) -> int:
        """The number of completed requests."""
        return sum(endpoint.answered for endpoint in self._all)

    async def start(self, say: Say) -> str:
        """Start all of them concurrently; returns the model's id.

        Raises:
            BackendError: none of them can be used.
            UsageError: they serve different models, or several each.
        """
        ends = await asyncio.gather(*(endpoint.start() for endpoint in self._all), return_exceptions=True)
        for end in ends:
            if isinstance(end, BaseException) and not isinstance(end, BackendError):
                raise end
        alive = [endpoint for endpoint in self._all if endpoint.alive]
        errors = [str(end) for end in ends if isinstance(end, BackendError)]
        if not alive:
            raise BackendError(
                f"No judge can be asked. {' '.join(errors)} `rlfactory judge serve --model "
                f"{self._model or 'MODEL'}` starts servers; the judge's url is the address of one that runs."
            )
        models = sorted({endpoint.model for endpoint in alive})
        if len(models) > 1:
            raise UsageError(
                f"The judge's endpoints serve different models: {', '.join(models)}. Choose one with judge.model."
            )
        for endpoint in self._all:
            endpoint.expect(models[0])
        for error in errors:
            say(f"warning: {error} The judge goes on without it and asks for its health in the meantime.")
        return models[0]

    async def identity(self) -> str:
        """The key of the model that answers now; see `probing.identity`.

        Raises:
            BackendError: none of the endpoints answers.
        """
        errors = []
        for endpoint in self._all:
            if endpoint.alive:
                try:
                    return await endpoint.identity()
                except (BackendError, TimeoutError) as error:
                    errors.append(f"{endpoint.url}: {error or 'no answer in time'}")
        raise BackendError(f"The judge lists its models, but answers no question. {' '.join(errors)}")

    def choose(self, avoid: Sequence[Endpoint] = ()) -> Endpoint | None:
        """The endpoint with the fewest running requests, in turns among equals; None if none is available now.

        Args:
            avoid: endpoints that failed this question, once for each failure; used if there is no other.
        """
        now = self._timing.clock()
        ready = [endpoint for endpoint in self._all if endpoint.alive and endpoint.paused_until <= now]
        self._revive_others()
        if not ready:
            return None
        chosen = min(ready, key=lambda one: (avoid.count(one), one.in_flight, self._last_used.get(one.url, -1)))
        self._last_used[chosen.url] = next(self._turn)
        return chosen

    async def ready(self) -> None:
        """Wait until an endpoint is available.

        Raises:
            UnavailableError: all are paused, or ask for a pause longer than a request may take.
        """
        while True:
            now = self._timing.clock()
            alive = [endpoint for endpoint in self._all if endpoint.alive]
            pause = min((endpoint.paused_until - now for endpoint in alive), default=0.0)
            if alive and pause <= 0.0:
                return
            if alive:
                if pause > self._options.request_s:
                    raise UnavailableError(
                        f"The judge asks to be left alone for {pause:.0f} s (Retry-After), longer than a "
                        f"request may take (request_s={self._options.request_s:g})."
                    )
                await self._timing.sleep(pause)
                continue
            self._revive_others()
            if not self._reviving:
                raise UnavailableError(
                    f"No endpoint of the judge answers ({', '.join(self.urls)}); each is left alone for "
                    f"{self._options.breaker_reset_s:g} s after {self._options.breaker_failures} failures in a row."
                )
            await asyncio.wait(list(self._reviving.values()), return_when=asyncio.FIRST_COMPLETED)

    def has_other(self, tried: Sequence[Endpoint]) -> bool:
        """Whether another endpoint is available now."""
        now = self._timing.clock()
        return any(one.alive and one.paused_until <= now and one not in tried for one in self._all)

    async def close(self) -> None:
        tasks = list(self._reviving.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for endpoint in self._all:
            await endpoint.close()

    def _revive_others(self) -> None:
        for endpoint in self._all:
            if not endpoint.alive and endpoint.url not in self._reviving and endpoint.is_due:
                self._reviving[endpoint.url] = asyncio.ensure_future(self._revive(endpoint))

    async def _revive(self, endpoint: Endpoint) -> None:
        try:
            await endpoint.revive()
        finally:
            del self._reviving[endpoint.url]
