"""What the page calls the options of the command line, also in the messages of commands."""

from __future__ import annotations

import re

OPTIONS = {  # of the command, each a field of the form: its name, and its label on the page
    "plugin": "Plugin",
    "agent": "Agent",
    "mcp": "MCP servers",
    "data": "Training data",
    "eval-data": "Held-out data",
    "judge": "Judge",
    "model": "Model",
    "engine": "Engine",
    "device": "Device",
    "seed": "Seed",
    "recipe": "Recipe",
    "config": "Begin from",
}
_LABELS = {**OPTIONS, "reward": "Rewards", "out": "Name of the run"}
_OPTION = re.compile(r"--([a-z-]+)\b")


def page_words(text: str) -> str:
    """A message of the command line with the labels of this page in place of the options' names."""
    return _OPTION.sub(lambda match: f"“{_LABELS[match[1]]}”" if match[1] in _LABELS else match[0], text)
