"""Fixtures of whole runs, and the path of what several tests here share."""

from __future__ import annotations

import sys
from pathlib import Path

from command_fixtures import install, rlfactory
from run_fixtures import cache, cli, nothing_left, tiny_model

__all__ = ["cache", "cli", "install", "nothing_left", "rlfactory", "tiny_model"]

sys.path.insert(0, str(Path(__file__).parent))  # verl_machines, verl_runs
