"""Without Qwen-Agent, its tools say what to install."""

from __future__ import annotations

import sys

import pytest
from rlfactory_mcp import qwen_tool

from rlfactory_core.errors import MissingExtraError


def test_a_missing_qwen_agent_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "qwen_agent.tools", None)
    with pytest.raises(MissingExtraError, match=r"python -m pip install 'rlfactory-core\[qwen-agent\]'"):
        qwen_tool("storage")
