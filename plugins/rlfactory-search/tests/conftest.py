"""A small corpus, a cache that is thrown away, and HotpotQA where it lies beside the repository."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HOTPOTQA = Path(__file__).parents[4] / "shared" / "cases" / "hotpotqa"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("RLFACTORY_CACHE", str(folder))
    return folder


@pytest.fixture
def write_corpus(tmp_path: Path) -> Callable[..., Path]:
    """Write texts as a corpus file; ids count from d0."""

    def write(*contents: str, name: str = "docs.jsonl") -> Path:
        rows = [json.dumps({"id": f"d{number}", "contents": text}) for number, text in enumerate(contents)]
        path = tmp_path / name
        path.write_text("\n".join(rows) + "\n", encoding="utf-8")
        return path

    return write


@pytest.fixture(scope="session")
def hotpotqa() -> Path:
    """The folder with questions.jsonl and corpus.jsonl."""
    if not HOTPOTQA.is_dir():
        pytest.skip(f"HotpotQA is not there: {HOTPOTQA} (questions.jsonl and corpus.jsonl)")
    return HOTPOTQA


@pytest.fixture(scope="session")
def hotpotqa_rows(hotpotqa: Path) -> list[dict[str, Any]]:
    """The questions as rows of verl's and Search-R1's columns."""
    questions = [json.loads(line) for line in (hotpotqa / "questions.jsonl").read_text(encoding="utf-8").splitlines()]
    return [
        {
            "id": question["id"],
            "data_source": "hotpotqa",
            "prompt": [{"role": "user", "content": question["question"]}],
            "ability": "fact-reasoning",
            "reward_model": {"style": "rule", "ground_truth": {"target": question["answers"]}},
            "extra_info": {"index": index, "split": "test", "supporting_titles": question["supporting_titles"]},
        }
        for index, question in enumerate(questions)
    ]
