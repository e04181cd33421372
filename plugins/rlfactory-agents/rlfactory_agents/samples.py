"""What a program reads and writes: the sample as JSON, and the answer in its output."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rlfactory_core.gateway import AgentResult
from rlfactory_core.types import Sample


def sample_json(sample: Sample) -> dict[str, Any]:
    """What a program sees of a sample: not its answer."""
    messages = [{"role": message.role, "content": message.content} for message in sample.messages]
    users = [message.content for message in sample.messages if message.role == "user"]
    metadata = json.loads(json.dumps(dict(sample.metadata), default=str))
    return {"id": sample.id, "prompt": users[-1] if users else "", "messages": messages, "metadata": metadata}


def read_output(output: bytes) -> AgentResult:
    """The answer in a program's output.

    It is the last line that is not empty; several lines if they end with ``</answer>``, from ``<answer>`` on and
    without these tags; or a JSON object that ends the output.

    Raises:
        AgentError: as `AgentResult.of`.
    """
    text = output.decode(errors="replace").rstrip()
    if not text:
        return AgentResult(None)
    lines = text.splitlines()
    last = lines[-1].strip()
    if last.endswith("</answer>") and "<answer>" not in last and "<answer>" in text:
        return AgentResult.of(text.rpartition("<answer>")[2].removesuffix("</answer>").strip())
    begins = [number for number, line in enumerate(lines[:-1]) if line.startswith("{")] if last.endswith("}") else []
    for tried in (last, *("\n".join(lines[number:]) for number in begins[-1:])):
        if (value := _json(tried)) is not None:
            return AgentResult.of(value)
    return AgentResult.of(last)


def _json(text: str) -> Mapping[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
