"""An event loop in a thread of its own, for what has to live on one loop through the whole run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

Value = TypeVar("Value")


class OwnLoop:
    """Runs coroutines on its loop, for callers on any other."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    async def run(self, work: Coroutine[Any, Any, Value]) -> Value:
        """The result of the work, which is cancelled with its caller."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def close(self) -> None:
        """End the loop; what still runs on it is cancelled."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30.0)

    def _serve(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            for left in asyncio.all_tasks(self._loop):
                left.cancel()
            self._loop.run_until_complete(asyncio.sleep(0))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()
