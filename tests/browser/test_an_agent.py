"""An agent of one's own, from the form to what it has played."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import blank_model
import pytest
from runs import write_lines

pytestmark = pytest.mark.slow

AGENT = """
import json, os, sys, urllib.request

body = {"model": os.environ["OPENAI_MODEL"], "messages": [{"role": "user", "content": json.load(sys.stdin)["prompt"]}]}
headers = {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "content-type": "application/json"}
address = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
answer = urllib.request.urlopen(urllib.request.Request(address, json.dumps(body).encode(), headers))
print(json.load(answer)["choices"][0]["message"]["content"])
"""


def test_an_agent_of_ones_own_is_trained(page: Any, expect: Callable[..., Any], tmp_path: Path) -> None:
    """A program, asked for the search task's questions, with a random model behind it: nothing is warm-started."""
    pytest.importorskip("torch", reason="the embedded engine needs rlfactory-core[local]")
    model = blank_model.write(tmp_path / "model", ["What colour is the capital of France? It is Paris."] * 4)
    agent = tmp_path / "agent.py"
    agent.write_text(AGENT)
    page.goto("/new")
    small = "train.steps=1 train.prompts_per_step=2 train.group_size=2 train.workers=1 eval.limit=1 eval.attempts=1"
    fields = {"plugin": "search", "name": "mine", "model": str(model), "agent": f"{sys.executable} {agent}"}
    fields["keys"] = small
    for name, text in fields.items():
        page.locator(f"[name={name}]").fill(text)
    expect(page.locator("#preview pre").first).to_contain_text("--agent")
    page.get_by_role("button", name="Start").click()
    page.locator("[data-live]").wait_for()
    expect(page.locator(".state").first).to_have_text("finished")
    page.goto("/runs/mine/trajectories?file=step-000001")
    expect(page.locator("a[data-item]")).to_have_count(4)
    page.locator("a[data-item]").first.click()
    expect(page.locator("pre.tokens .own")).not_to_have_count(0)  # what the model sampled for the program


def test_an_agent_and_data_of_ones_own(page: Any, expect: Callable[..., Any], tmp_path: Path) -> None:
    data = write_lines(tmp_path / "data.jsonl", [{"prompt": "What colour is Bale?", "answer": "red"}])
    agent = tmp_path / "agent.py"
    agent.write_text("print('red')\n")
    page.goto("/new")
    page.locator("[name=agent]").fill(f"{sys.executable} {agent}")
    preview = page.locator("#preview")
    expect(preview.get_by_role("alert")).to_be_visible()  # what is missing
    page.locator("[name=data]").fill(str(data))
    page.locator("[name=eval-data]").fill(str(data))
    page.locator("[name=keys]").fill("data.columns.answer=answer")
    page.locator("[name=model]").fill("Qwen/Qwen3-0.6B")
    page.get_by_role("button", name="Show the first rows").click()
    expect(page.locator("#rows")).to_contain_text("What colour is Bale?")
    expect(preview).to_contain_text("the whole configuration")
    expect(preview.locator("pre").first).to_contain_text("--agent")
