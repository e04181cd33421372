"""Python's random generator, which games share that draw from it."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")
_log = logging.getLogger(__name__)


class SharedGenerator:
    """Lends Python's generator to one game at a time, and gives it back as it was.

    A game that keeps it for too long is passed over: it may hang, and the others have to go on.
    """

    def __init__(self) -> None:
        self._returned = threading.Condition()
        self._holder: object | None = None
        self._since = 0.0
        self._outside: object = None  # the generator's state before it was lent

    def run(self, work: Callable[[], Value], state: object, patience_s: float) -> tuple[Value, object]:
        """What ``work`` returns, and the generator's state after it.

        Args:
            state: the generator's for ``work``; None: as it is.
            patience_s: how long another game may keep the generator.
        """
        me = object()
        self._take(me, patience_s)
        try:
            if state is not None:
                random.setstate(state)  # type: ignore[arg-type]
            return work(), random.getstate()
        finally:
            with self._returned:
                if self._holder is me:  # else it was passed over
                    random.setstate(self._outside)  # type: ignore[arg-type]
                    self._holder = None
                    self._returned.notify()

    def _take(self, me: object, patience_s: float) -> None:
        with self._returned:
            while self._holder is not None:
                left = self._since + patience_s - time.monotonic()
                if left <= 0.0:
                    _log.warning("a game has moved for %g s; the others go on without waiting for it", patience_s)
                    random.setstate(self._outside)  # type: ignore[arg-type]
                    break
                self._returned.wait(left)
            self._holder, self._since, self._outside = me, time.monotonic(), random.getstate()
