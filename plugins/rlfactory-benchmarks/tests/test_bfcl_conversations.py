"""Multi-turn conversations: verdicts are the official checkers', attempts share nothing, functions come late."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from rlfactory_devkit import TaskBench, oracle

from rlfactory_core import Message, StopReason, ToolContext
from rlfactory_core.protocols import EnvStep
from rlfactory_core.tiny import call
from rlfactory_core.types import FaultKind

pytest.importorskip("bfcl_eval", reason="the benchmark's own package is installed with --no-deps")
pytest.importorskip("tree_sitter", reason="its parsers have no wheels for this Python")
from bfcl_harness import gold, harness, mutated, official_verdict
from rlfactory_benchmarks.bfcl import check_output
from rlfactory_benchmarks.bfcl.data import Entry, categories, entries, entry
from rlfactory_benchmarks.bfcl.official import official
from rlfactory_benchmarks.bfcl.task import Bfcl

MULTI_TURN = [name for name in categories() if "multi_turn" in name]


def env(question: Entry) -> Any:
    task = Bfcl({"categories": question.category, "questions": "all"})
    sample = next(each for each in task.samples("eval") if each.id == question.id)
    return task.make_env(sample, None, ToolContext("x", sample))  # type: ignore[arg-type]


def left_behind() -> list[str]:
    return [name for name in vars(official().execution) if name.startswith("rlfactory")]


@pytest.mark.parametrize("category", MULTI_TURN)
def test_verdicts_are_those_of_the_harness(category: str, monkeypatch: pytest.MonkeyPatch) -> None:
    runner, rng, counts = harness(monkeypatch), random.Random(category), {True: 0, False: 0}
    for question in list(entries(category).values())[:: rng.randrange(9, 14)]:
        for history in (
            gold(question),
            mutated(question, rng, 0),
            mutated(question, rng, 1),
            mutated(question, rng, 3),
        ):
            ours = check_output(question, history, form="calls")
            assert ours.valid == official_verdict(runner, question, history), (question.id, history, ours)
            counts[ours.valid] += 1
    assert min(counts.values()) > 10, counts
    assert not left_behind()


def test_texts_and_function_calls_are_decoded_as_in_the_harness(monkeypatch: pytest.MonkeyPatch) -> None:
    runner, decoding = harness(monkeypatch), official().handling
    question = next(each for each in entries("multi_turn_base").values() if _has_names(each))
    as_text = [[f"[{', '.join(turn)}]", "That is all."] for turn in question.truth]
    calls = [[[{"mkdir": '{"dir_name": "a"}'}, {"ls": "{}"}], "Done.", [{"cd": "broken"}]] for _ in question.truth]
    for output, form, decode in (
        (as_text, "text", decoding.default_decode_execute_prompting),
        (calls, "functions", decoding.convert_to_function_call),
        (as_text[:-1], "text", decoding.default_decode_execute_prompting),
        ("Error", "text", None),
    ):
        ours = check_output(question, output, form=form)  # type: ignore[arg-type]
        assert ours.valid is (output is as_text)
        assert ours.valid == official_verdict(runner, question, output, decode)


def _has_names(question: Entry) -> bool:
    """Whether all arguments have names, without which the harness drops them from a text."""
    return all("=" in call or "()" in call for turn in question.truth for call in turn)


@pytest.mark.slow
def test_the_expected_calls_earn_the_reward_and_attempts_share_nothing() -> None:
    categories = ",".join(MULTI_TURN)
    with TaskBench("bfcl", [f"task.categories={categories}"]) as bench:
        rows = bench.rows("eval")
        chosen = [each for name in MULTI_TURN for each in [row for row in rows if row.slice == name][:2]]
        alone = {sample.id: bench.play(oracle(bench.task), [sample])[0] for sample in chosen}
        at_once = bench.play(oracle(bench.task), chosen, attempts=4)
    assert len(at_once) == 32
    for played in at_once:
        assert (played.stop, played.reward, played.masked) == (StopReason.ENV_DONE, 1.2, False), played.sample.id
        assert [turn.results for turn in played.turns] == [turn.results for turn in alone[played.sample.id].turns]
    late = next(each for each in at_once if "miss_func" in each.sample.id)
    (fork,) = [turn for turn in late.turns if turn.fork]
    added = {tool.name for tool in fork.tools or ()} - {tool.name for tool in late.tools}
    assert (fork.fork, added) == (
        "changed_tools",
        {tool.name for each in entry(late.sample.id).late.values() for tool in each},
    )
    assert not left_behind()


def test_a_conversation_ends_after_21_messages_with_calls_and_earns_nothing() -> None:
    async def play() -> EnvStep:
        episode = env(entry("multi_turn_base_0"))
        await episode.start()
        for number in range(21):
            step: EnvStep = await episode.step(Message("assistant", "", tool_calls=(call("pwd"),)))
            assert (step.stop is not None) is (number == 20)
        await episode.close()
        return step

    step = asyncio.run(play())
    assert (step.stop, dict(step.info)) == (StopReason.MAX_TURNS, {})


def test_what_a_model_writes_is_not_run_as_python(tmp_path: Any) -> None:
    async def play() -> EnvStep:
        episode = env(entry("multi_turn_base_0"))
        await episode.start()
        hostile = (
            call("ls", **{f"a=open({str(tmp_path / 'x')!r}, 'w'), b": 1}),
            call("__import__('os').mkdir", path=str(tmp_path / "x")),
            call("open", file=str(tmp_path / "x"), mode="w"),
            call("no_such_function"),
            call("pwd"),
        )
        step: EnvStep = await episode.step(Message("assistant", "", tool_calls=hostile))
        await episode.close()
        return step

    *refused, known = asyncio.run(play()).results
    assert [each.fault for each in refused] == [FaultKind.POLICY] * 4
    assert known.fault is None
    assert "workspace" in known.content
    assert not list(tmp_path.iterdir())


def calculated(text: str) -> str:
    """What the package's calculator answers to a call."""
    code = official()
    with code.simulators() as name:
        run = code.execution.execute_multi_turn_func_call
        run([], {}, ["MathAPI"], name, "x")
        ((found,), _) = run([text.replace("SIMULATOR", f"{name}_x_MathAPI_instance")], {}, ["MathAPI"], name, "x")
    return str(found)


@pytest.mark.parametrize(
    "text",
    [
        "power(base=9, exponent=999999999)",
        "power(9, 10**9)",
        "power(9, exponent=multiply(a=99999, b=99999))",
        "square_root(number=2, precision=999999999)",
        "round_number(number=5, decimal_places=-999999999)",
        "logarithm(value=2, base=3, precision=99999999)",
        "SIMULATOR.__init__()",
        "SIMULATOR.__class__",
        "add(a=SIMULATOR, b=1)",
        "add(a=1, b=[each for each in (1, 2)])",
    ],
)
def test_calls_that_never_end_or_are_no_calls_of_functions_are_refused(text: str) -> None:
    assert "rror" in calculated(text)


def test_numbers_within_the_bounds_are_calculated() -> None:
    assert calculated("power(base=9, exponent=3)") == '{"result": 729}'
    assert calculated("round_number(number=1.25, decimal_places=-2)") == '{"result": 0.0}'
    assert calculated(" add(1, b=-2)") == '{"result": -1}'
