"""Chooses how progress is shown."""

from __future__ import annotations

import os
from typing import TextIO

from rlfactory_core.reporting.progress import Progress
from rlfactory_core.ui.plain import PlainProgress


def make_progress(stream: TextIO) -> Progress:
    """A live panel where ``stream`` is a terminal that can redraw, plain lines elsewhere."""
    if stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb"):
        from rlfactory_core.ui.rich_progress import RichProgress

        return RichProgress(stream)
    return PlainProgress(stream)
