"""``python -m rlfactory_core`` is ``rlfactory``."""

from __future__ import annotations

from rlfactory_core.cli.main import main

main()
