"""``rlfactory plugins check`` as its user meets it, and what its checks let pass."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from bad_tasks import KINDS, TASKS
from jsonschema import Draft202012Validator
from rlfactory_devkit import TaskBench
from rlfactory_devkit.checks import run_check, run_checks
from rlfactory_devkit.checks.blocking import LoopTimes, blockers
from rlfactory_devkit.checks.context import CheckContext, CheckOptions
from rlfactory_devkit.checks.leakage import leaks
from rlfactory_devkit.checks.splits import disjoint
from rlfactory_devkit.examples import example_arguments
from rlfactory_devkit.redteam import run_redteam

from rlfactory_core import Sample
from rlfactory_core.errors import PluginError, UsageError
from rlfactory_core.protocols import EnvStart, EnvStep
from rlfactory_core.types import Message, StopReason, ToolSpec

PLUGIN = str(Path(__file__).parents[3] / "tests" / "support" / "bad_tasks.py")
Run = Callable[..., Any]


@pytest.mark.slow
def test_the_command_says_what_it_found(rlfactory: Run) -> None:
    done = rlfactory("plugins", "check", PLUGIN, "--only", "splits", "--only", "oracle", "--bad", "pays_less")
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    assert any(line.startswith("FAIL  oracle") for line in lines)
    assert any(line.startswith("pass  splits") for line in lines)
    assert "      train: the oracle gets 0.9 on average of 6 samples; expected 1 each time." in done.stdout
    assert lines[-1].startswith(f"{PLUGIN}: 1 of 2 checks failed: oracle.")
    assert done.stderr == ""


@pytest.mark.slow
def test_one_check_is_one_check(rlfactory: Run) -> None:
    done = rlfactory("plugins", "check", PLUGIN, "--only", "splits")
    assert done.stdout.splitlines()[-1].startswith(f"{PLUGIN}: 1 check passed.")
    done = rlfactory("plugins", "check", PLUGIN, "--only", "oracle", "--bad", "pays_less")
    assert done.stdout.splitlines()[-1].startswith(f"{PLUGIN}: 1 of 1 check failed: oracle.")


def test_a_tool_that_nothing_describes_is_told() -> None:
    with CheckContext(PLUGIN, ["task.bad=undescribed"]) as context:
        told = run_check("leakage", context)
    assert told.passed
    assert told.evidence[0].startswith("the tools' schemas: the model is not told of look what it does")
    with CheckContext(PLUGIN) as context:
        assert not any("is not told" in text for text in run_check("leakage", context).evidence)


def test_no_reward_is_expected_of_a_task_without_a_solution() -> None:
    with CheckContext(PLUGIN, ["task.bad=unsolved"]) as context:
        oracle, floor = run_check("oracle", context), run_check("floor", context)
    assert oracle.passed
    assert "its solve() is no solution" in oracle.evidence[0]
    assert floor.passed is None
    with (
        pytest.raises(UsageError, match="changes a right solution, and this task has none"),
        TaskBench(PLUGIN, ["task.bad=unsolved"]) as bench,
    ):
        run_redteam(bench)


def test_the_results_as_json_of_data_and_a_reward_of_ones_own(rlfactory: Run, tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text('{"prompt": "1+1?", "answer": "2"}\n{"prompt": "1+2?", "answer": "3"}\n')
    (tmp_path / "own.py").write_text("def brief(trajectory): return 1.0\n")
    own = ["--data", tmp_path / "train.jsonl", "data.columns.answer=answer", "--reward", f"{tmp_path / 'own.py'}:brief"]
    done = rlfactory("plugins", "check", "--only", "splits", "--json", *map(str, own))
    found = json.loads(done.stdout)
    assert (done.returncode, found["passed"], [each["name"] for each in found["checks"]]) == (0, True, ["splits"])
    assert (found["plugin"], found["checks"][0]["evidence"][0]) == ("tools", "train: 2 samples with unique ids")
    assert "Name the task" in rlfactory("plugins", "check", "train.lr=1").stderr


def test_an_unknown_check_gets_the_nearest_name(rlfactory: Run) -> None:
    done = rlfactory("plugins", "check", PLUGIN, "--only", "leak")
    assert (done.returncode, done.stderr) == (2, "error: There is no check 'leak'. Did you mean 'leakage'?\n")


def test_what_the_user_can_mend_is_no_finding() -> None:
    with pytest.raises(UsageError, match="bda"):
        CheckContext(PLUGIN, ["task.bda=good"])
    with pytest.raises(UsageError, match="--data"):
        CheckContext("tools").open()


@pytest.mark.slow
def test_a_blocked_event_loop_is_left_behind() -> None:
    names = ["oracle", "floor", "leakage", "isolation", "splits"]
    with CheckContext(PLUGIN, ["task.bad=blocks"], CheckOptions(samples=3, deadline_s=0.5, close_s=0.3)) as context:
        results = {result.name: result for result in run_checks(context, names)}
    assert {name for name, result in results.items() if result.passed} == {"oracle", "leakage", "splits"}
    assert "did not end within 0.5 s" in results["floor"].evidence[0]


def test_an_exit_is_a_finding_and_ends_nothing() -> None:
    with CheckContext(PLUGIN, ["task.bad=exits"], CheckOptions(samples=2)) as context:
        results = {result.name: result for result in run_checks(context, ["oracle", "splits", "bounds"])}
    assert "sys.exit(5) is called" in results["oracle"].evidence[0]
    assert "bad_tasks.py:" in results["oracle"].evidence[0]
    assert results["splits"].passed


def test_what_a_task_prints_is_not_in_the_json(rlfactory: Run) -> None:
    done = rlfactory("plugins", "check", PLUGIN, "--only", "oracle", "--json", "--bad", "prints")
    assert json.loads(done.stdout)["passed"], done.stdout
    assert "Bale" in done.stderr


def test_a_working_directory_that_moves_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(PLUGIN).parent)
    with CheckContext("./bad_tasks.py", ["task.bad=moves"]) as context:
        results = {result.name: result for result in run_checks(context, ["oracle", "splits"])}
        assert context.closed_bench().rows("train")
    assert results["oracle"].evidence[0].startswith("the working directory has become /.")
    assert results["splits"].passed


def test_samples_without_an_answer_among_others_are_no_crash() -> None:
    with CheckContext(PLUGIN, ["task.bad=some_unanswered"]) as context:
        assert run_check("floor", context).passed


def test_metadata_may_have_keys_of_several_types() -> None:
    with CheckContext(PLUGIN, ["task.bad=odd_metadata"]) as context:
        assert run_check("splits", context).passed


@pytest.mark.slow
def test_a_lost_thread_that_computes_leaves_the_exit_code(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="a thread in C++ at the interpreter's end is what aborts")
    done = subprocess.run([sys.executable, "-c", COMPUTES], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (3, "lost\n", "")


COMPUTES = """
import sys
import torch
from rlfactory_core.errors import DeadlineError
from rlfactory_core.runner.loop_thread import LoopThread

async def compute():
    numbers = torch.ones(300, 300)
    while True:
        numbers = (numbers @ numbers).tanh()

loop = LoopThread()
try:
    loop.run(compute(), 0.5, "it")
except DeadlineError:
    print("lost" if not loop.close(1.0) else "closed")
sys.exit(3)
"""


def test_each_bad_task_has_a_name_of_its_own() -> None:
    assert len(TASKS) == len(KINDS) - 1  # the base of those with an environment of their own is none


# --- what stands in a prompt ----------------------------------------------------------------------------------------

CITIES = ("Paris", "London", "Berlin", "Madrid", "Vienna", "Athens", "Dublin", "Lisbon")


def asked(texts: Iterable[tuple[str, str]]) -> list[tuple[Sample, str]]:
    return [(Sample(f"s{index}", text, answer), text) for index, (text, answer) in enumerate(texts)]


def test_options_to_choose_from_are_no_leak() -> None:
    def options(index: int) -> str:
        chosen = [CITIES[(index + k * (index % 3 + 1)) % 8] for k in range(4)]
        chosen[0], chosen[index % 4] = chosen[index % 4], CITIES[index]
        return "Which one? " + " ".join(f"{letter}) {city}" for letter, city in zip("ABCD", chosen, strict=True))

    assert not leaks("the prompt", asked((options(index), CITIES[index]) for index in range(8))).wrong


def test_a_passage_to_be_read_is_no_leak() -> None:
    passages = [
        f"{'So it went. ' * index}It was {CITIES[index]} {'that they left ' * (index % 3)}once." for index in range(8)
    ]
    varied = [text.replace("It was", before) for text, before in zip(passages, "abcdefgh", strict=True)]
    assert not leaks("the prompt", asked(zip(varied, CITIES, strict=True))).wrong


def test_labels_that_every_prompt_names_are_no_leak() -> None:
    text = "Is it positive or negative?"
    assert not leaks("the prompt", asked((text, ("positive", "negative")[index % 2]) for index in range(8))).wrong


def test_short_answers_are_told_from_chance() -> None:
    numbers = [(f"How many are in shop {100 + index}?", str(index)) for index in range(8)]
    assert not leaks("the prompt", asked(numbers)).wrong
    told = [(f"{text} (It is {answer}.)", answer) for text, answer in numbers]
    assert leaks("the prompt", asked(told)).wrong


def test_a_yes_that_may_be_a_no_is_no_leak() -> None:
    text = "Is it so? Say yes or no."
    assert not leaks("the prompt", asked((text, ("yes", "no")[index % 2]) for index in range(8))).wrong


@pytest.mark.parametrize("form", ["Where is {n}? Hint: {a}.", "{a} is where {n} lies?", "{n} - {a}"])
def test_an_answer_that_stands_in_one_place_is_a_leak(form: str) -> None:
    texts = [(form.format(n=f"house {index}", a=city), city) for index, city in enumerate(CITIES)]
    assert leaks("the prompt", asked(texts)).wrong


CAPITALS = {"法国": "巴黎", "日本": "东京", "韩国": "首尔", "英国": "伦敦", "德国": "柏林", "中国": "北京"}
TOWNS = {"เหนือ": "เชียงใหม่", "ใต้": "ภูเก็ต", "กลาง": "กรุงเทพ", "อีสาน": "ขอนแก่น", "ตะวันออก": "ชลบุรี", "ตะวันตก": "กาญจนบุรี"}


@pytest.mark.parametrize(
    ("form", "known"),
    [
        ("{n}的首都是哪里?提示:答案是{a}。", CAPITALS),
        ("{n}的首都{a}是什么?", CAPITALS),
        ("ที่{n}คือเมือง{a}ใช่ไหม", TOWNS),
        ("{n}의 수도는 {a}이다", {f"{number}번": name for number, name in enumerate(("서울", "파리", "런던", "도쿄"))}),
        ("第{n}题的答案是{a}分", {str(100 + number): str(number) for number in range(8)}),
    ],
)
def test_an_answer_within_a_sentence_without_spaces_is_a_leak(form: str, known: dict[str, str]) -> None:
    assert leaks("the prompt", asked((form.format(n=n, a=a), a) for n, a in known.items())).wrong


@pytest.mark.parametrize("form", ["{n}的首都是哪里?", "{n}的首都是巴黎、东京、首尔、伦敦、柏林还是北京?"])
def test_a_question_without_spaces_is_no_leak(form: str) -> None:
    assert not leaks("the prompt", asked((form.format(n=n), a) for n, a in CAPITALS.items())).wrong


# --- splits ---------------------------------------------------------------------------------------------------------


def rows(*pairs: tuple[str, str], **metadata: Any) -> list[Sample]:
    return [Sample(f"{index}", prompt, answer, metadata) for index, (prompt, answer) in enumerate(pairs)]


def test_a_question_that_means_something_else_elsewhere_is_not_the_same() -> None:
    train = rows(("Who made it?", "Ann"), ("Who sold it?", "Bob"), ("Who broke it?", "Cid"), world="one")
    other = rows(("Who made it?", "Ann"), ("Who sold it?", "Cid"), ("Who broke it?", "Bob"), world="two")
    assert not any(each.wrong for each in disjoint(train, other))
    same = rows(("Who made it?", "Ann"), ("Who sold it?", "Bob"), ("Who lost it?", "Eve"), world="two")
    assert [each.wrong for each in disjoint(train, same)] == [True]


def test_a_game_asks_the_same_each_time() -> None:
    def games(*numbers: int) -> list[Sample]:
        return [Sample(f"{number}", "Guess my number.", None, {"number": number}) for number in numbers]

    assert not any(each.wrong for each in disjoint(games(1, 2), games(3)))
    assert [each.wrong for each in disjoint(games(1, 2), games(2, 3))] == [True]


def test_a_copy_among_many_others_is_found() -> None:
    train = rows(("Who made it?", "Ann"), ("Who sold it?", "Bob"), ("Who broke it?", "Cid"))
    other = rows(("Who made it?", "Ann"), ("Who sold it?", "Cid"), ("Who broke it?", "Bob"))
    (found,) = disjoint(train, other)
    assert found.wrong
    assert "1 of 3 eval samples" in found.text


# --- example arguments ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {}},
        {"type": "object", "properties": {"a": {"type": "string", "minLength": 12}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"type": "integer", "minimum": 7, "multipleOf": 5}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"type": "number", "exclusiveMinimum": 0}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"enum": ["x", "y"]}, "b": {"const": 3}}, "required": ["a", "b"]},
        {"type": "object", "properties": {"a": {"anyOf": [{"type": "null"}, {"type": "string"}]}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"type": ["string", "null"], "maxLength": 3}}, "required": ["a"]},
        {
            "type": "object",
            "properties": {"a": {"type": "array", "items": {"$ref": "#/$defs/P"}, "minItems": 2}},
            "required": ["a"],
            "$defs": {"P": {"type": "object", "properties": {"x": {"type": "boolean"}}, "required": ["x"]}},
        },
    ],
)
def test_example_arguments_fit_their_schema(schema: dict[str, Any]) -> None:
    Draft202012Validator(schema).validate(example_arguments(ToolSpec("t", "", schema)))


class Walk:
    """An environment whose steps keep the event loop; the first start does, too, because it loads what it needs."""

    loaded = False

    async def start(self) -> EnvStart:
        time.sleep(0.0 if Walk.loaded else 0.2)  # noqa: ASYNC251
        Walk.loaded = True
        await asyncio.sleep(0.2)
        return EnvStart((Message("user", "?"),), ())

    async def step(self, message: Message) -> EnvStep:
        time.sleep(0.06)  # noqa: ASYNC251
        return EnvStep(stop=StopReason.ENV_DONE)

    def close(self) -> None:
        """Not as the contract says."""


def test_code_that_keeps_the_event_loop_is_named_if_it_does_so_each_time() -> None:
    def play(times: LoopTimes) -> None:
        async def episode() -> None:
            env = times.env(Walk())  # type: ignore[arg-type]
            await env.start()
            await env.step(Message("assistant", "!"))
            with pytest.raises(PluginError, match=r"Walk\.close is not async"):
                await env.close()

        asyncio.run(episode())

    (found,) = blockers(play)
    assert found.startswith("Walk.step blocks the event loop for 0.0")
    assert "def instead of async def" in found


_NOT_ASYNC = """
from rlfactory_core import EnvStart, EnvStep, Message, Sample, StopReason, Task, hookimpl

class NotAsync:
    def start(self): return EnvStart((Message("user", "?"),), ())
    def step(self, message): return EnvStep(stop=StopReason.ENV_DONE)
    def close(self): pass

class Walk(Task):
    def make_env(self, sample, tools, context): return NotAsync()
    def samples(self, split): return [Sample(f"{split}-{n}", f"Where is {n}?", f"{n}") for n in range(4)]
    def solve(self, sample, messages): return Message("assistant", f"<answer>{sample.answer}</answer>")

@hookimpl
def rlfactory_tasks(register):
    register("walk", Walk)
"""


def test_an_environment_that_is_not_async_is_told_in_words_by_each_check(tmp_path: Path) -> None:
    file = tmp_path / "walk.py"
    file.write_text(_NOT_ASYNC)
    with CheckContext(str(file)) as context:
        results = [run_check(name, context) for name in ("oracle", "leakage", "bounds")]
    for result in results:
        assert not result.passed
        assert result.evidence[0].startswith("PluginError: NotAsync.close is not async; write `async def close(")
