"""``rlfactory trace RUN --export``: the conversations of a run as other trainers read them."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from reporting_examples import decode, finished_run, infra_fault, make_trajectory, run_trace

from rlfactory_core.errors import DataError, UsageError
from rlfactory_core.reporting.conversations import conversations
from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.reporting.trajectories import StoredTrajectory
from rlfactory_core.rollout.history import DROPPED_THINKING
from rlfactory_core.tasks.trace_export import export_traces
from rlfactory_core.tasks.traces import read_traces
from rlfactory_core.types import (
    Message,
    Sample,
    StopReason,
    ToolCall,
    ToolResult,
    ToolSpec,
    Trajectory,
    Turn,
)

SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}, "many": {"type": "array"}}}
TOOLS = (ToolSpec("search", "Finds.", SCHEMA), ToolSpec("a.b/c d", "", {"type": "object", "properties": {}}))


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return finished_run(tmp_path)


def test_a_run_is_exported_as_openai_has_it(folder: RunFolder, tmp_path: Path) -> None:
    shown = run_trace(str(folder.path), "--export", str(tmp_path / "sft.jsonl"), "--where", "reward > 0.15")
    rows = [json.loads(line) for line in (tmp_path / "sft.jsonl").read_text(encoding="utf-8").splitlines()]
    assert shown == f"{len(rows)} conversations of {len(rows)} attempts in {tmp_path / 'sft.jsonl'}\n"
    assert {row["reward"] > 0.15 for row in rows} == {True}
    asked, called, found, answered = rows[0]["messages"]
    assert asked["role"] == "user"
    assert called["tool_calls"] == [
        {"id": "c0", "type": "function", "function": {"name": "search", "arguments": '{"query": "Orla Finn"}'}}
    ]
    assert (called["content"], called["reasoning_content"]) == ("", "I look it up.")
    assert (found["tool_call_id"], found["content"]) == ("c0", "Orla Finn leads Velk Works.")
    assert answered == {"role": "assistant", "content": "<answer>Tarn</answer>"}
    assert [tool["function"]["name"] for tool in rows[0]["tools"]] == ["search"]


def texts(rng: random.Random) -> str:
    return "".join(rng.choice(["a", " ", "\n", '"', "\\", "<", "é", "🎲", "{}", "[f()]", "\t"]) for _ in range(9)) + "."


def value(rng: random.Random, depth: int = 2) -> Any:
    plain = [texts(rng), rng.randint(-9, 9), rng.random(), True, False]
    inner = [{"k": value(rng, depth - 1)}, [value(rng, depth - 1)]] if depth else []
    return rng.choice([*plain, *inner])


def random_trajectory(rng: random.Random) -> Trajectory:
    """A trajectory of up to four turns with parallel calls, observations of the user, and rows that drop thinking."""
    prompt = (Message("system", texts(rng)), Message("user", texts(rng)))[rng.randint(0, 1) :]
    turns: list[Turn] = []
    for number in range(count := rng.randint(1, 4)):
        calls = rng.randint(0, 2) if number < count - 1 else 0
        made = []
        for index in range(calls):
            arguments = {"q": value(rng), "many": [value(rng)]}
            made.append(ToolCall(f"c{index}", rng.choice(TOOLS).name, json.dumps(arguments), arguments))
        message = Message("assistant", texts(rng), reasoning=texts(rng) * rng.randint(0, 1), tool_calls=tuple(made))
        results = tuple(ToolResult(call.id, call.name, texts(rng)) for call in made)
        asked = (Message("user", texts(rng)),) if number and not turns[-1].results else ()
        forks = bool(number) and rng.random() < 0.3
        turns.append(
            Turn(
                (1,), (2,), (0.0,), message, results, observed=asked,
                row=turns[-1].row + forks if turns else 0, fork=DROPPED_THINKING if forks else "",
            )
        )  # fmt: skip
    return Trajectory(Sample("s", prompt), 0, tuple(turns), StopReason.NO_TOOL_CALL, tools=TOOLS)


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_what_is_exported_is_read_back_as_the_same_conversation(tmp_path: Path, suffix: str) -> None:
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
    rng = random.Random(39)
    made = [random_trajectory(rng) for _ in range(120)]
    stored = [
        StoredTrajectory.from_line(StoredTrajectory.of(each, lambda ids: "").to_line()).trajectory for each in made
    ]
    done = export_traces(stored, tmp_path / f"sft.{suffix}")
    read = read_traces(tmp_path / f"sft.{suffix}")
    assert (len(read), done.attempts, done.left_out) == (len(made), len(made), [])
    for trajectory, back in zip(made, read, strict=True):
        (conversation,) = conversations(trajectory)
        assert [replace_texts(each) for each in back.messages] == [
            replace_texts(each) for each in conversation.messages
        ]
        assert sum(back.learnt) == len(trajectory.turns)
        assert back.tools == TOOLS


def replace_texts(message: Message) -> Message:
    """Without the text of arguments, which JSON may write in another way."""
    return replace(message, tool_calls=tuple(replace(call, arguments_text="") for call in message.tool_calls))


def test_a_rewritten_history_is_a_conversation_of_its_own_in_which_earlier_turns_are_not_learnt() -> None:
    first = Turn((1,), (2,), (0.0,), Message("assistant", "One."))
    history = (Message("user", "Q"), Message("assistant", "One."), Message("user", "And?"))
    other = (ToolSpec("look", "", {"type": "object", "properties": {}}),)
    second = Turn(
        (1,), (2,), (0.0,), Message("assistant", "Two."), row=1, fork="compacted", observed=history, tools=other
    )
    found = conversations(Trajectory(Sample("s", "Q"), 0, (first, second), StopReason.NO_TOOL_CALL, tools=TOOLS))
    assert [each.learnt for each in found] == [[True], [False, True]]
    row = found[1].as_openai()
    assert [each.get("weight") for each in row["messages"]] == [None, 0, None, None]
    assert row["tools"][0]["function"]["name"] == "look"


def cut(trajectory: Trajectory) -> Trajectory:
    return replace(trajectory, turns=(*trajectory.turns[:-1], replace(trajectory.turns[-1], finish="length")))


def malformed(trajectory: Trajectory) -> Trajectory:
    call = ToolCall("c0", "search", "{", None, "no JSON")
    turn = replace(trajectory.turns[0], message=Message("assistant", "", tool_calls=(call,)))
    return replace(trajectory, turns=(turn, *trajectory.turns[1:]))


@pytest.mark.parametrize(
    ("trajectory", "reason"),
    [
        (make_trajectory(faults=(infra_fault(),)), "a fault masks it"),
        (malformed(make_trajectory()), r"the call '\{' is not valid"),
        (cut(make_trajectory(calls=0)), "no turn that is complete"),
        (make_trajectory(answer="\ud83d"), "half of a character"),
        (replace(make_trajectory(), answer="x"), "is not stored; the run is of an earlier version"),
        (replace(make_trajectory(), turns=(replace(make_trajectory().turns[0], images=("0123456789ab",)),)), "images"),
    ],
)  # fmt: skip
def test_what_cannot_be_exported_is_left_out_and_said(tmp_path: Path, trajectory: Trajectory, reason: str) -> None:
    done = export_traces([trajectory, make_trajectory()], tmp_path / "sft.jsonl")
    assert (len(done.rows), done.attempts) == (1, 1)
    with pytest.raises(DataError, match=reason):
        raise DataError(done.left_out[0])


def test_a_turn_that_a_limit_has_cut_is_left_out() -> None:
    (conversation,) = conversations(cut(make_trajectory()))
    assert [message.role for message in conversation.messages] == ["user", "assistant"]


def test_nothing_is_overwritten_and_a_filter_that_keeps_nothing_says_what_there_is(
    folder: RunFolder, tmp_path: Path
) -> None:
    (tmp_path / "there.jsonl").write_text("mine")
    for target, reason in (
        (tmp_path / "there.jsonl", "exists"),
        (tmp_path / "sft.csv", r"expected \.jsonl or \.parquet"),
    ):
        with pytest.raises(UsageError, match=reason):
            run_trace(str(folder.path), "--export", str(target))
    with pytest.raises(UsageError, match=r"keeps none of \d+ attempts\. They have reward from 0 to 0\.3"):
        run_trace(str(folder.path), "--export", str(tmp_path / "sft.jsonl"), "--where", "reward > 5")
    assert (tmp_path / "there.jsonl").read_text() == "mine"
    assert not (tmp_path / "sft.jsonl").exists()


def test_the_condition_also_chooses_what_is_shown(folder: RunFolder) -> None:
    assert "1 of 1 trajectories" in run_trace(str(folder.path), "--where", "reward >= 0.25")
    assert decode  # the texts of the example are those of its ids


@pytest.mark.slow
def test_trl_reads_what_is_exported(tmp_path: Path) -> None:
    data_utils = pytest.importorskip("trl.data_utils")
    datasets = pytest.importorskip("datasets")
    for name in ("sft.jsonl", "sft.parquet"):
        export_traces([make_trajectory(), make_trajectory(calls=2)], tmp_path / name)
        kind = "json" if name.endswith("jsonl") else "parquet"
        files, cache = str(tmp_path / name), str(tmp_path / f"cache-{kind}")
        rows = datasets.load_dataset(kind, data_files=files, split="train", cache_dir=cache)
        for row in rows:
            assert data_utils.is_conversational(row)
            tools = json.loads(row["tools"]) if isinstance(row["tools"], str) else row["tools"]
            text = qwen_tokenizer().apply_chat_template(row["messages"], tools=tools, tokenize=False)
            assert '"name": "search"' in text
            assert "<tool_call>" in text
            assert "<answer>Tarn</answer>" in text


def qwen_tokenizer() -> Any:
    from chat_tokenizers import QWEN, make_tokenizer

    from rlfactory_core.chat.families.qwen3 import QWEN3_TEMPLATE

    return make_tokenizer(QWEN3_TEMPLATE, QWEN)
