"""What a task and its scorers know of the run that they are part of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


def _nobody(reason: str) -> None:
    """Outside a run, and where nothing is trained, there is no step to stop after."""


@dataclass(frozen=True, slots=True)
class RunContext:
    """The run around a task; the default is that of a task that is played outside one.

    Args:
        folder: the run's; the same in all its processes, also on other machines. None: there is none.
        request_stop: lets the run stop after the step under way, as Ctrl-C does, with a sentence for the user that says
            why. It returns at once, may be called from every process, thread and as often as it is true; the first
            reason counts. Asked for before the first step, the run stops before it. An evaluation goes on to its end.
        sections: what stands under ``plugins`` in the configuration, and the defaults of the other plugins in use: by
            name an object of the class that the plugin registers (``rlfactory_config_sections``).
    """

    folder: Path | None = None
    request_stop: Callable[[str], None] = _nobody
    sections: Mapping[str, Any] = field(default_factory=dict)
