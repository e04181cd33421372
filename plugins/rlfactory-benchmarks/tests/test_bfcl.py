"""The leaderboard's task: what it shows, and that its verdicts are the official checker's."""

from __future__ import annotations

import asyncio
import copy
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from rlfactory_core import Group, Message, Sample, Score, Trajectory
from rlfactory_core.errors import ConfigError
from rlfactory_core.types import StopReason, Turn

pytest.importorskip("bfcl_eval", reason="the benchmark's own package is installed with --no-deps")
pytest.importorskip("tree_sitter", reason="its parsers have no wheels for this Python")
from bfcl_harness import harness
from rlfactory_benchmarks.bfcl import check_output
from rlfactory_benchmarks.bfcl.command import bfcl
from rlfactory_benchmarks.bfcl.data import UNANSWERABLE, Entry, categories, entries, in_split
from rlfactory_benchmarks.bfcl.official import official
from rlfactory_benchmarks.bfcl.rewards import Official
from rlfactory_benchmarks.bfcl.task import Bfcl

SINGLE_TURN = [name for name in categories() if "multi_turn" not in name]


def test_the_possible_answer_is_right_and_a_changed_one_is_not() -> None:
    task = Bfcl({"categories": "simple_python"})
    sample = next(iter(task.samples("eval")))
    message = task.solve(sample, sample.messages)
    turn = Turn((), (), (), message)
    right = Trajectory(sample, 0, (turn,), StopReason.ENV_DONE)
    assert asyncio.run(Official().score(right)).value == 1
    nothing = Trajectory(sample, 0, (Turn((), (), (), Message("assistant", "")),), StopReason.ENV_DONE)
    assert asyncio.run(Official().score(nothing)).value == 0


@pytest.mark.parametrize("category", SINGLE_TURN)
def test_the_solution_of_every_question_is_right(category: str) -> None:
    task = Bfcl({"categories": category, "questions": "all"})
    assert not list(task.samples("train"))
    assert task.defaults["eval"] == {"limit": 0}
    samples = list(task.samples("eval"))
    assert len(samples) == len(entries(category))
    for sample in samples:
        written = task.solve(sample, sample.messages).tool_calls
        calls = [{call.name: dict(call.arguments or {})} for call in written]
        right = sample.id not in UNANSWERABLE
        assert check_output(sample.id, calls, form="calls", dots=False).valid is right, sample.id


@pytest.mark.slow
def test_training_and_evaluation_share_no_scenario() -> None:
    names = ("train", "eval")
    found: dict[str, list[Entry]] = {split: [] for split in names}
    for category in categories():
        for each in entries(category).values():
            for split in names:
                found[split] += [each] if in_split(each, split) else []
    assert len(found["train"]) > 2 * len(found["eval"]) > 1000
    words = [{each.turns[0][-1].content for each in found[split]} for split in names]
    assert not words[0] & words[1]
    live = [
        {tuple(tool["name"] for tool in each.row["function"]) for each in found[split] if "live" in each.id}
        for split in names
    ]
    assert not live[0] & live[1] - {()}
    numbers = [{each.id.split("_")[-1] for each in found[split] if "multi_turn" in each.id} for split in names]
    assert not numbers[0] & numbers[1]


def test_categories_are_named_one_by_one_or_together() -> None:
    assert Bfcl({"categories": "live, simple_java"}).categories[-2:] == ["live_relevance", "simple_java"]
    with pytest.raises(ConfigError, match="'memory_kv'"):
        assert Bfcl({"categories": "memory"}).categories


def first(accepted: Any) -> Any:
    if not isinstance(accepted, list):
        return accepted
    value = next((each for each in accepted if each != ""), "")
    return {key: first(each) for key, each in value.items()} if isinstance(value, dict) else value


def right(entry: Entry) -> list[dict[str, Any]]:
    """Calls that are mostly right."""
    if not entry.truth:
        return [{entry.shown[0].name if entry.shown else "f": {}}]
    found = []
    for truth in entry.truth:
        ((name, accepted),) = truth.items()
        found.append({name: {key: first(each) for key, each in accepted.items() if "" not in each}})
    return found


def changed(calls: list[dict[str, Any]], rng: random.Random) -> Any:
    """Something that a model may have written instead."""
    calls = copy.deepcopy(calls)
    kind = rng.randrange(13)
    arguments = next(iter(rng.choice(calls).values()))
    key = rng.choice(list(arguments) or ["x"])
    value = arguments.get(key)
    others = {
        0: str(value), 1: None, 2: [value], 3: {"a": value}, 4: f" {value}!".upper(), 5: "true",
        6: float(value) if isinstance(value, int) else 3, 7: tuple(value) if isinstance(value, list) else True,
    }  # fmt: skip
    if kind in others:
        arguments[key] = others[kind]
    elif kind == 8:
        arguments.pop(key, None)
    elif kind == 9:
        arguments["unknown"] = 1
    elif kind == 10:
        calls.append(copy.deepcopy(calls[0]))
    elif kind == 11:
        calls.pop()
    else:
        rng.shuffle(calls)
    return calls


def as_text(calls: list[dict[str, Any]]) -> str:
    parts = [
        f"{name}({', '.join(f'{k}={v!r}' for k, v in given.items())})" for call in calls for name, given in call.items()
    ]
    return f"[{', '.join(parts)}]"


def outputs(entry: Entry, rng: random.Random) -> list[tuple[Any, str]]:
    gold = right(entry)
    found: list[tuple[Any, str]] = [
        ("I cannot do that.", "text"),
        ("I cannot do that.", "functions"),
        ("", "functions"),
    ]
    for calls in (gold, changed(gold, rng), changed(gold, rng)):
        spelt = [{name.replace(".", "_"): json.dumps(given) for name, given in call.items()} for call in calls]
        found += [(as_text(calls), "text"), (spelt, "functions")]
    return found


def test_verdicts_are_those_of_the_harness(monkeypatch: pytest.MonkeyPatch) -> None:
    runner, code, rng, counts = harness(monkeypatch), official().handling, random.Random(7), {True: 0, False: 0}

    def decode(output: Any, language: Any, has_tool_call_tag: bool) -> Any:
        if form == "functions":
            return [{name: json.loads(call[name])} for call in output for name in list(call.keys())[:1]]
        return code.default_decode_ast_prompting(output, language, has_tool_call_tag)

    for category in SINGLE_TURN:
        for entry in list(entries(category).values())[:: rng.randrange(7, 12)]:
            prompt = {"function": entry.row["function"]}
            for output, form in outputs(entry, rng):
                model = "dots" if form == "text" else "underscores"
                handler = SimpleNamespace(decode_ast=decode)
                try:
                    if "relevance" in category:
                        found = runner._evaluate_single_relevance_entry(
                            handler, entry.id, output, prompt, model, category
                        )
                    else:
                        found = runner._evaluate_single_ast_entry(
                            handler, entry.id, output, list(entry.truth), prompt, model, category,
                            runner.Language[language(category)], runner.ReturnFormat[language(category)],
                        )  # fmt: skip
                except Exception:
                    found = {"valid": False}
                ours = check_output(entry, output, form=form)  # type: ignore[arg-type]
                assert ours.valid == found["valid"], (entry.id, output, form, ours, found.get("error"))
                counts[ours.valid] += 1
    assert min(counts.values()) > 300, counts


def language(category: str) -> str:
    return {"simple_java": "JAVA", "simple_javascript": "JAVASCRIPT"}.get(category, "PYTHON")


def played(category: str, values: Sequence[float]) -> list[Group]:
    samples = [Sample(f"{category}_{number}", "?", slice=category) for number in range(len(values))]
    return [
        Group(each, (Trajectory(each, 0, (), StopReason.ENV_DONE, score=Score(value, {"bfcl": value})),))
        for each, value in zip(samples, values, strict=True)
    ]


def test_the_table_weighs_categories_as_the_leaderboard_does() -> None:
    parts = {"simple_python": [1, 1, 0, 0], "simple_java": [1, 0], "simple_javascript": [0], "multiple": [1, 1]}
    parts |= {"parallel": [0, 1], "parallel_multiple": [0, 0], "live_relevance": [1]}
    groups = [group for name, values in parts.items() for group in played(name, values)]
    (table,) = Bfcl({}).eval_tables({"greedy": groups})
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["simple_python"][:2] == [4, 0.5]
    assert rows["live_relevance"][:2] == [1, 1.0]
    mean = ((0.5 + 0.5 + 0) / 3 + 1 + 0.5 + 0) / 4
    assert rows["non-live (mean)"][:2] == [13, pytest.approx(mean)]
    assert rows["non-live (mean)"][2] < mean < rows["non-live (mean)"][3]
    assert "multi-turn (mean)" not in rows


def test_a_short_evaluation_has_questions_of_each_category_and_its_table_says_how_many() -> None:
    task = Bfcl({"categories": "simple_python,live_parallel,irrelevance"})
    samples = list(task.samples("eval"))
    assert [each.slice for each in samples[:6]] == ["simple_python", "live_parallel", "irrelevance"] * 2
    assert len({each.id for each in samples}) == len(samples)
    (table,) = task.eval_tables({"greedy": played("irrelevance", [1, 0])})
    assert table.notes[0].startswith(f"2 of {len(samples)} held-out questions; bfcl-eval ")


def test_live_categories_count_by_the_leaderboards_numbers_of_questions() -> None:
    names = ("live_simple", "live_multiple", "live_parallel", "live_parallel_multiple")
    groups = [group for name in names for group in played(name, [name == "live_multiple"])]
    (table,) = Bfcl({}).eval_tables({"greedy": groups})
    (mean,) = (row for row in table.rows if row[0] == "live (mean)")
    assert mean[1:3] == [4, pytest.approx(1053 / 1351)]


def test_stored_outputs_are_scored(tmp_path: Path) -> None:
    def write(category: str, results: Mapping[str, Any]) -> None:
        rows = [json.dumps({"id": name, "result": result}) for name, result in results.items()]
        (tmp_path / f"BFCL_v4_{category}_result.json").write_text("\n".join(rows), encoding="utf-8")

    gold = [right(entry) for entry in list(entries("simple_python").values())[:2]]
    calls = [
        [{name.replace(".", "_"): json.dumps(given) for name, given in call.items()} for call in each] for each in gold
    ]
    write("simple_python", {"simple_python_0": calls[0], "simple_python_1": calls[1], "simple_python_2": "no"})
    write("multiple", {"multiple_0": as_text(right(entries("multiple")["multiple_0"])), "multiple_1": "no"})
    done = CliRunner().invoke(bfcl, ["score", str(tmp_path)])
    assert done.exit_code == 0, done.output
    lines = [line.split() for line in done.output.splitlines()]
    assert ["simple_python", "3", "0.667"] in [line[:3] for line in lines]
    assert ["multiple", "2", "0.500"] in [line[:3] for line in lines]
    write("memory", {"memory_0": "x"})
    done = CliRunner().invoke(bfcl, ["score", str(tmp_path)])
    assert "BFCL_v4_memory_result.json: not scored" in done.output
    assert ["multiple", "2", "0.500"] in [line.split()[:3] for line in done.output.splitlines()]
    write("multiple", {"multiple_5000": "x"})
    assert "no question 'multiple_5000'" in str(CliRunner().invoke(bfcl, ["score", str(tmp_path)]).exception)
