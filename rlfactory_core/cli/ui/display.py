"""What all displays of progress do at their end."""

from __future__ import annotations

import sys
from collections.abc import Callable

from rlfactory_core.reporting.progress import Progress


class Display(Progress):
    """At its end, standard output and standard error are those of its beginning.

    A tool may have replaced them: of ``redirect_stdout`` in several calls at once, the last one to end may leave
    another's in place.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(clock)
        self._streams = sys.stdout, sys.stderr

    def close(self) -> None:
        super().close()
        sys.stdout, sys.stderr = self._streams
