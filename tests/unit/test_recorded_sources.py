"""Demonstrations from a file, a run or an evaluation: what is played, learnt from, held out and said."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from chat_families import make_format
from trace_plays import qwen

from rlfactory_core.errors import DataError, UsageError
from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.rollout import RolloutLimits, WrittenModel, rollout
from rlfactory_core.rollout.episode import Episode
from rlfactory_core.rollout.history import remove_oldest_result
from rlfactory_core.rollout.settings import RolloutConfig
from rlfactory_core.rollout.written import RecordedEnv
from rlfactory_core.tasks.task import Task
from rlfactory_core.training.recorded import Recorded, Replayed, open_file, open_run
from rlfactory_core.training.sources import Solved
from rlfactory_core.types import Fault, FaultKind, Group, Message, Sample, Score, StopReason, ToolSpec, Trajectory

SEARCH = ToolSpec("search", "Finds.", {"type": "object", "properties": {"query": {"type": "string"}}})


def tasks(chat: Any = None, **limits: Any) -> Any:
    """An open task, as far as a source needs it."""
    config = RolloutConfig(**limits)
    runtime = SimpleNamespace(
        chat=chat or qwen(),
        limits=SimpleNamespace(max_tokens=config.max_tokens),
        manager=SimpleNamespace(specs=(SEARCH,)),
        setup=SimpleNamespace(rollout=config),
        task=SimpleNamespace(compact=remove_oldest_result),
    )
    return SimpleNamespace(by_name={"": runtime}, chat=runtime.chat)


def row(question: str, *, calls: int = 1, **columns: Any) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": question}]
    for number in range(calls):
        function = {"name": "search", "arguments": json.dumps({"query": f"{question} {number}"})}
        messages.append({"role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": function}]})
        messages.append({"role": "tool", "tool_call_id": "c", "content": f"Found {number}."})
    return {"messages": [*messages, {"role": "assistant", "content": "Ann."}], **columns}


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(each) + "\n" for each in rows), encoding="utf-8")
    return path


def play(source: Any, sample: Sample) -> Trajectory:
    (trajectory,) = asyncio.run(source.play(sample, session="1/0", attempts=1, temperature=1.0, seed=0)).trajectories
    return trajectory


def opened(path: Path, said: list[str], where: str = "", **limits: Any) -> Recorded:
    return open_file(path, tasks(**limits), where, said.append)


def learnt(trajectory: Trajectory) -> list[str]:
    return [qwen().decode(turn.sampled_ids) for turn in trajectory.turns]


def test_the_rows_of_a_file_are_shown_with_the_tools_of_the_task(tmp_path: Path) -> None:
    said: list[str] = []
    source = opened(write(tmp_path / "t.jsonl", row("Who?"), row("When?", calls=0, tools=[])), said)
    first, second = (play(source, sample) for sample in source.samples)
    assert [sample.id for sample in source.samples] == ["t.jsonl#0", "t.jsonl#1"]
    assert first.tools == (SEARCH,)
    assert second.tools == ()
    assert '"name": "search"' in qwen().decode(first.turns[0].context_ids)
    assert learnt(first)[1] == "Ann.<|im_end|>"
    assert (first.stop, first.score, first.num_tool_calls) == (StopReason.NO_TOOL_CALL, None, 1)
    assert said == []


def test_what_is_not_learnt_from_is_said_once_with_its_number(tmp_path: Path) -> None:
    said: list[str] = []
    more = row("Who?")
    more["messages"].append({"role": "user", "content": "Thanks."})
    opened(write(tmp_path / "t.jsonl", row("Who?"), more, more), said)
    first = f"The first: {tmp_path / 't.jsonl'}, row 1 (from 0)"
    assert said == [f"not learnt from, in 2 of 3 rows: what follows the assistant's last turn. {first}"]


def test_a_call_of_a_tool_that_the_task_does_not_have_is_refused_with_its_row(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", json.loads(json.dumps(row("Who?")).replace('"search"', '"serch"')))
    with pytest.raises(DataError, match=r"row 0 .* calls 'serch', a tool that the task does not have.*'search'"):
        opened(path, [])


def test_only_the_turns_with_a_weight_are_learnt_and_the_others_are_read(tmp_path: Path) -> None:
    one, two = row("Who?", calls=2), row("Who?", calls=2)
    one["messages"][1]["weight"] = two["messages"][-1]["weight"] = 0
    whole, first_read, last_read = (
        play(opened(write(tmp_path / f"{number}.jsonl", each), []), Sample(f"{number}.jsonl#0", "Who?"))
        for number, each in enumerate((row("Who?", calls=2), one, two))
    )
    assert learnt(first_read) == learnt(whole)[1:]
    assert learnt(last_read) == learnt(whole)[:-1]
    assert first_read.ids == whole.ids
    assert sum(first_read.loss_mask) == whole.num_sampled - len(whole.turns[0].sampled_ids)
    assert first_read.turns[0].observed[:2] == (whole.sample.messages[0], whole.turns[0].message)


def test_a_trace_that_is_too_long_is_cut_at_a_turn_or_refused(tmp_path: Path) -> None:
    said: list[str] = []
    long = row("Who?" * 400, calls=0)
    path = write(tmp_path / "t.jsonl", row("Who?", calls=9), long, row("x" * 10_000_000, calls=0))
    source = opened(path, said, max_tokens=500)
    cut, without, huge = (play(source, sample) for sample in source.samples)
    assert 1 <= len(cut.turns) < 10
    assert (cut.stop, len(cut.ids) <= 500) == (StopReason.LENGTH, True)
    words = f"it is longer than rollout.max_tokens=500, and cut after {len(cut.turns)} of 10 turns."
    assert said == [f"warning: {path}, row 0 (from 0): {words}"]
    assert without.turns == huge.turns == ()
    assert "row 1 (from 0): it is longer than rollout.max_tokens=500" in without.faults[0].message
    assert "row 2 (from 0): 10,000,004 characters do not fit" in huge.faults[0].message


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ((4, 500), "tokens, more than rollout.max_turn_tokens=4"),
        ((100, 60), "tokens, and rollout.max_tokens=60 leaves room for"),
    ],
)
def test_a_solution_that_is_too_long_is_refused_with_the_key_of_the_limit(limits: tuple[int, int], words: str) -> None:
    chat, task = qwen(), type("Long", (Task,), {"solve": lambda *_: Message("assistant", "a long answer " * 12)})()
    bounds = RolloutLimits(4, 4, *limits)

    async def played(sample: Sample, model: WrittenModel, *, session: str, **_: Any) -> Group:
        made = RecordedEnv((*sample.messages, Message("assistant", "the end")), ())
        return Group(sample, (await rollout(Episode(sample, lambda *_: made, bounds, session), model),))

    runtime = SimpleNamespace(task=task, chat=chat, limits=bounds, play=played)
    source = Solved(SimpleNamespace(of=lambda _: runtime), (), (), lambda _: True)  # type: ignore[arg-type]
    trajectory = play(source, Sample("a", "Who?"))
    assert trajectory.turns == ()
    assert words in trajectory.faults[0].message


def test_a_turn_that_the_chat_format_cannot_write_is_refused_with_its_row(tmp_path: Path) -> None:
    beside = row("Who?")
    beside["messages"][1]["content"] = "Let me look."
    path = write(tmp_path / "t.jsonl", beside)
    source = open_file(path, tasks(make_format("own_pythonic")), "", print)
    refused = play(source, source.samples[0])
    assert refused.turns == ()
    assert refused.faults[0].message.startswith(f"{path}, row 0 (from 0): chat format 'pythonic' writes the content")


def test_thinking_is_dropped_as_at_inference(tmp_path: Path) -> None:
    said = row("Who?")
    said["messages"][1]["reasoning_content"] = "I should look."
    said["messages"] += [{"role": "user", "content": "And when?"}, {"role": "assistant", "content": "Now."}]
    path = write(tmp_path / "t.jsonl", said)
    rows = [
        len(play(opened(path, [], context=mode), Sample("t.jsonl#0", "Who?")).rows)
        for mode in ("keep", "drop_thinking")
    ]
    assert rows == [1, 2]


def test_one_prompt_in_ten_is_held_out_with_all_its_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", *(row(f"Who is {number % 30}?") for number in range(90)))
    source = opened(path, [])
    trained, held_out = ({sample.messages[0].content for sample in each} for each in (source.samples, source.held_out))
    assert (len(source.samples), len(source.held_out), len(held_out), trained & held_out) == (81, 9, 3, set())
    assert opened(write(tmp_path / "few.jsonl", row("Who?"), row("When?")), []).held_out == []


def recorded(folder: Path, source: Recorded, *, decode: Any = None, **changed: Any) -> RunFolder:
    """A run whose attempts are those of a file, with a reward of 1 for every second."""
    run = RunFolder.create("run", folder)
    run.write_config({"plugin": "x"})
    played = [
        replace(
            play(source, sample),
            attempt=number,
            score=Score(float(number % 2), {"right": float(number % 2)}),
            **changed,
        )
        for number, sample in enumerate(source.samples)
    ]
    run.write_trajectories(1, played[:3], decode or qwen().decode)
    run.write_trajectories(2, played[3:], decode or qwen().decode)
    return run


def rows_of(path: Path) -> Recorded:
    return opened(write(path / "t.jsonl", *(row(f"Who is {number}?") for number in range(6))), [])


def test_attempts_of_the_same_model_have_the_ids_that_they_had(tmp_path: Path) -> None:
    source, said = rows_of(tmp_path), list[str]()
    run = recorded(tmp_path / "run", source)
    replayed = open_run(run, tasks(), "reward >= 1", said.append)
    assert isinstance(replayed, Replayed)
    assert [sample.id for sample in replayed.samples] == ["step-000001#1", "step-000002#0", "step-000002#2"]
    for number, sample in zip((1, 3, 5), replayed.samples, strict=True):
        played = play(replayed, sample)
        assert played.ids == play(source, source.samples[number]).ids
        assert (played.reward, played.sample.id) == (1.0, sample.id)
    assert said == [f"3 of 6 attempts of {run.path} are learnt from: reward >= 1"]


def test_attempts_of_another_model_are_written_anew(tmp_path: Path) -> None:
    run, said = recorded(tmp_path / "run", rows_of(tmp_path)), list[str]()
    chat = make_format("own_llama3")
    anew = open_run(run, tasks(chat), "right == 1", said.append)
    assert isinstance(anew, Recorded)
    played = play(anew, anew.samples[0])
    assert "<|start_header_id|>" in chat.decode(played.turns[0].context_ids)
    assert chat.decode(played.turns[1].sampled_ids) == "Ann.<|eot_id|>"
    assert "written in this model's chat format, llama3" in said[1]


def test_a_teacher_behind_a_server_has_no_ids(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", rows_of(tmp_path))
    lines = [run.trajectory_file(step).read_text().splitlines() for step in (1, 2)]
    for name, step in zip(("eval-after", "eval-after-sampled"), lines, strict=True):
        kept = [json.loads(line) for line in step]
        for each in kept:
            each["sample"]["split"] = "eval"
            for turn in each["turns"]:
                turn |= {"context_ids": [], "sampled_ids": [], "logprobs": [], "context_text": "", "sampled_text": ""}
        run.trajectory_file(name).write_text("".join(json.dumps(each) + "\n" for each in kept))
    run.cut_after(0)
    said: list[str] = []
    source = open_run(run, tasks(), "reward > 0", said.append)
    assert [learnt(play(source, sample))[1] for sample in source.samples] == ["Ann.<|im_end|>"] * 3
    assert "the split eval: its samples are no longer held out in this run" in said[1]


def test_a_filter_that_keeps_nothing_says_what_there_is(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", rows_of(tmp_path))
    with pytest.raises(
        UsageError, match=r"keeps none of 6 attempts\. They have reward from 0 to 1; tool_calls from 1 to 1"
    ):
        open_run(run, tasks(), "reward > 1 and tool_calls > 0", print)
    fault = Fault(FaultKind.INFRA, "search", "late")
    masked = recorded(tmp_path / "masked", rows_of(tmp_path), faults=(fault,))
    with pytest.raises(DataError, match="has no attempts that no fault masks"):
        open_run(masked, tasks(), "reward > 0", print)
