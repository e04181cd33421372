"""A one-file plugin to talk about, the model of its server, and what a run's folder keeps of a conversation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fake_openai import Reply, said

PLUGIN = '''
from rlfactory_core import Sample, Task, hookimpl, tool


@tool
def find(name: str) -> str:
    """Find a person."""
    return f"{name} is in Tarn"


class Places(Task):
    tools = [find]
    rewards = {"exact_match": 1.0}

    def samples(self, split):
        yield Sample(id="Ann", prompt="Where is Ann?", answer="Tarn", split=split)


@hookimpl
def rlfactory_tasks(register):
    register("places", Places)
'''


def oracle(body: Mapping[str, Any]) -> Reply:
    """Looks the name up, and says where she is."""
    if body["messages"][-1]["role"] == "user":
        return said(None, ("find", '{"name": "Ann"}'))
    return said("<answer>Tarn</answer>")


def run_of_it(runs: Path, name: str) -> Path:
    """The folder of a run with this task and no checkpoint."""
    folder = runs / name
    folder.mkdir(parents=True)
    plugin = folder / "places.py"
    plugin.write_text(PLUGIN, encoding="utf-8")
    config = {"plugin": str(plugin), "model": "unused", "engine": "local"}
    (folder / "config.yaml").write_text(json.dumps(config), encoding="utf-8")
    return folder


def kept_conversation(*texts: str) -> str:
    """``play.json`` with the texts in each place where a sample, a model or a tool can write."""
    result = {"name": texts[-1], "content": texts[0], "latency_s": 0.1, "cached": False, "fault": "tool"}
    turns = [
        {
            "text": text,
            "edited": True,
            "content": text,
            "reasoning": text,
            "calls": [{"name": text, "arguments_text": text, "error": text}],
            "results": [result],
            "observed": [],
        }
        for text in texts
    ]
    first = texts[0]
    view: dict[str, Any] = {
        "model": first,
        "sample": first,
        "answer": first,
        "own": False,
        "asked": [],
        "samples": list(texts),
        "prompt": [{"role": text, "content": text} for text in texts],
        "tools": [],
        "turns": turns,
        "stop": first,
        "faults": list(texts),
        "reward": 0.5,
        "components": dict.fromkeys(texts, 1.0),
        "verdicts": {first: {"passed": False, "reasons": list(texts), "data": {}}},
    }
    return json.dumps(view)
