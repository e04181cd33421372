"""``rlfactory plugins check`` as its user meets it, and what its checks let pass."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from bad_tasks import TASKS, called
from jsonschema import Draft202012Validator

from rlfactory_core import Sample
from rlfactory_core.errors import UsageError
from rlfactory_core.testing.checks.leakage import leaks
from rlfactory_core.testing.checks.running import run_checks
from rlfactory_core.testing.checks.splits import disjoint
from rlfactory_core.testing.checks.subject import Subject
from rlfactory_core.testing.examples import example_arguments
from rlfactory_core.types import ToolSpec

PLUGIN = str(Path(__file__).parents[1] / "support" / "bad_tasks.py")
Run = Callable[..., Any]


def test_the_command_says_what_it_found(rlfactory: Run) -> None:
    done = rlfactory("plugins", "check", PLUGIN, "--only", "splits", "--only", "oracle", "--bad", "pays_less")
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    assert any(line.startswith("FAIL  oracle") for line in lines)
    assert any(line.startswith("pass  splits") for line in lines)
    assert "      train: the oracle gets 0.9 on average of 6 samples; expected 1 each time." in done.stdout
    assert lines[-1].startswith(f"{PLUGIN}: 1 of 2 checks failed: oracle.")
    assert done.stderr == ""


def test_the_results_as_json(rlfactory: Run) -> None:
    done = rlfactory("plugins", "check", PLUGIN, "--only", "splits", "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["passed"], [each["name"] for each in found["checks"]]) == (0, True, ["splits"])
    assert found["checks"][0]["evidence"][0] == "train: 6 samples with ids of their own"


def test_an_unknown_check_gets_the_nearest_name(rlfactory: Run) -> None:
    done = rlfactory("plugins", "check", PLUGIN, "--only", "leak")
    assert (done.returncode, done.stderr) == (2, "error: There is no check 'leak'. Did you mean 'leakage'?\n")


def test_what_the_user_can_mend_is_no_finding() -> None:
    with pytest.raises(UsageError, match="bda"):
        Subject(PLUGIN, ["task.bda=good"])
    with pytest.raises(UsageError, match="--data"):
        Subject("tools").open()


@pytest.mark.slow
def test_a_blocked_event_loop_is_left_behind() -> None:
    names = ["oracle", "floor", "leakage", "isolation", "splits"]
    with Subject(PLUGIN, ["task.bad=blocks"], samples=3, deadline_s=0.5, close_s=0.3) as subject:
        results = {result.name: result for result in run_checks(subject, names)}
    assert {name for name, result in results.items() if result.passed} == {"oracle", "leakage", "splits"}
    assert "did not end within 0.5 s" in results["floor"].evidence[0]


def test_each_bad_task_has_a_name_of_its_own() -> None:
    assert len({called(kind) for kind in TASKS}) == len(TASKS)


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
