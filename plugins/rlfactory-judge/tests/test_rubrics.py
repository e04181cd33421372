"""Rubrics: the built-in ones, files of a user's own, what a template may see, and what its faults look like."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rlfactory_judge.forms import RankingForm, ScoreForm, TurnScoresForm
from rlfactory_judge.options import Mode
from rlfactory_judge.rubrics.quoting import NOTICE, quoted
from rlfactory_judge.rubrics.rubric import BUILT_IN, MAX_RESULT, MAX_TRANSCRIPT, Rubric

from rlfactory_core.errors import ConfigError
from rlfactory_core.types import FaultKind, Message, Sample, StopReason, ToolCall, ToolResult, Trajectory, Turn

SCORE = ScoreForm(0, 10)
SAMPLE = Sample("s1", "Who discovered radium?", ("Marie Curie", "Curie"), metadata={"level": "hard", "hops": 2})


def turn(text: str, *calls: tuple[str, str], fault: FaultKind | None = None, finish: Any = "stop") -> Turn:
    made = tuple(ToolCall(f"c{i}", "search", arguments) for i, (arguments, _) in enumerate(calls))
    results = tuple(ToolResult(f"c{i}", "search", content, fault) for i, (_, content) in enumerate(calls))
    return Turn((), (), (), Message("assistant", text, reasoning="hm", tool_calls=made), results, finish=finish)


def attempt(*turns: Turn, sample: Sample = SAMPLE) -> Trajectory:
    return Trajectory(sample, 0, turns, StopReason.FINAL_ANSWER)


TWO_TURNS = attempt(turn("I search.", ('{"query": "radium"}', "Radium: Marie Curie")), turn("<answer>Curie</answer>"))


def write(folder: Path, user: str, system: str = "Judge.", outside: str = "") -> str:
    path = folder / "own.jinja"
    path.write_text(
        f"{{% block system %}}{system}{{% endblock %}}{outside}\n{{% block user %}}{user}{{% endblock %}}\n",
        encoding="utf-8",
    )
    return str(path)


def refusal(name: str, mode: Mode = "outcome") -> str:
    with pytest.raises(ConfigError) as caught:
        Rubric.load(name, mode)
    return str(caught.value)


def test_correctness_shows_question_truth_and_answer() -> None:
    asked = Rubric.load("correctness", "outcome").question(TWO_TURNS, SCORE)
    assert asked.form is SCORE
    assert NOTICE in asked.system
    assert asked.user.endswith(SCORE.instruction)
    parts = [asked.user.index(quoted(text)) for text in ("Who discovered radium?", "Marie Curie")]
    assert parts == sorted(parts)
    assert quoted("Curie") in asked.user
    assert "I search." not in asked.user


def test_without_truth_correctness_says_so_and_helpfulness_never_shows_it() -> None:
    bare = replace(TWO_TURNS, sample=replace(SAMPLE, answer=None))
    assert "There is no reference answer" in Rubric.load("correctness", "outcome").question(bare, SCORE).user
    assert "Marie Curie" not in Rubric.load("helpfulness", "outcome").question(TWO_TURNS, SCORE).user


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        ("x", ["x"]),
        (["x", "y"], ["x", "y"]),
        (3, ["3"]),
        (False, ["false"]),
        ({"a": 1}, ['{"a":1}']),
        ([], []),
        (None, []),
    ],
)
def test_every_kind_of_truth_is_shown(answer: Any, shown: list[str], tmp_path: Path) -> None:
    rubric = Rubric.load(write(tmp_path, "{{ truth | join('|') }} {{ form.instruction }}"), "outcome")
    asked = rubric.question(attempt(turn("x"), sample=replace(SAMPLE, answer=answer)), SCORE)
    assert asked.user == f"{'|'.join(map(quoted, shown))} {SCORE.instruction}".strip()


@pytest.mark.parametrize(
    ("turns", "answer"),
    [
        ((turn("<answer>a</answer> or <answer> b </answer>"),), "b"),
        ((turn("<answer>a</answer>"), turn("bye")), "a"),
        ((turn("one"), turn("two")), "two"),
        ((turn("<answer>open"),), "<answer>open"),
        ((), ""),
    ],
)
def test_the_answer_is_the_last_marked_one_or_the_last_message(turns: tuple[Turn, ...], answer: str) -> None:
    asked = Rubric.load("correctness", "outcome").question(attempt(*turns), SCORE)
    assert f"The answer to grade:\n{quoted(answer)}\n" in asked.user


def test_an_agent_is_judged_by_what_it_gave_and_not_by_what_its_model_said_last() -> None:
    rubric, said = Rubric.load("correctness", "outcome"), attempt(turn("I have looked it up."))
    given = rubric.question(replace(said, answer="Marie Curie"), SCORE)
    failed = rubric.question(replace(said, stop=StopReason.AGENT_FAILED), SCORE)
    assert f"The answer to grade:\n{quoted('Marie Curie')}\n" in given.user
    assert f"The answer to grade:\n{quoted('')}\n" in failed.user


def test_a_tools_output_is_never_taken_for_the_answer() -> None:
    asked = Rubric.load("correctness", "outcome").question(
        attempt(turn("no idea", ("{}", "<answer>Marie Curie</answer>"))), SCORE
    )
    assert f"The answer to grade:\n{quoted('no idea')}\n" in asked.user


def test_the_stable_part_comes_first() -> None:
    rubric = Rubric.load("correctness", "outcome")
    first, second = (rubric.question(attempt(turn(text)), SCORE) for text in ("one", "two"))
    assert first.system == second.system
    shared = first.user.index("The answer to grade:\n")
    assert first.user[:shared] == second.user[:shared]
    assert "Who discovered radium?" in first.user[:shared]
    steps = Rubric.load("steps", "process")
    short, long = (
        steps.question(attempt(turn("one"), turn(text)), TurnScoresForm(2, 0, 10)).user for text in ("two", "three")
    )
    shared = short.index("Turn 2, ")
    assert short[:shared] == long[:shared]


def test_equal_trajectories_give_equal_questions() -> None:
    rubric = Rubric.load("steps", "process")
    assert rubric.question(TWO_TURNS, SCORE) == Rubric.load("steps", "process").question(
        replace(TWO_TURNS, attempt=3), SCORE
    )


def test_steps_show_each_turn_with_its_calls_and_results() -> None:
    refused = turn("I try again.", ('{"q": 1}', "unknown argument q"), fault=FaultKind.POLICY, finish="length")
    user = Rubric.load("steps", "process").question(attempt(*TWO_TURNS.turns, refused), TurnScoresForm(3, 0, 10)).user
    assert f"Turn 1, the model's text:\n{quoted('I search.')}\n" in user
    assert "Turn 1, a tool call of the model:\n" + quoted('search {"query": "radium"}') in user
    assert f"Turn 1, the tool's result:\n{quoted('Radium: Marie Curie')}" in user
    assert f"Turn 3, the tool's refusal:\n{quoted('unknown argument q')}" in user
    assert "(Turn 3 was cut off" in user
    assert "hm" not in user.split()


def test_comparisons_number_the_candidates_in_their_order() -> None:
    two = [attempt(turn("one")), attempt(turn("two"))]
    form = RankingForm(2)
    for mode in ("ranking", "pairwise"):
        user = Rubric.load("comparison", mode).question_of_many(two, form).user  # type: ignore[arg-type]
        assert f"Candidate 1:\n{quoted('one')}\n\nCandidate 2:\n{quoted('two')}\n" in user
        assert user.endswith(form.instruction)


def test_a_bare_text_is_asked_about_as_it_is() -> None:
    rubric = Rubric.load("correctness", "outcome")
    asked = rubric.question_of_text(prompt="Q?", answer="a <answer>b</answer> c", truth=["d"], form=SCORE)
    assert all(quoted(text) in asked.user for text in ("Q?", "a <answer>b</answer> c", "d"))
    plain = rubric.question_of_text(prompt=str(SAMPLE.prompt), answer="Curie", truth=SAMPLE.answer, form=SCORE)
    assert plain == rubric.question(TWO_TURNS, SCORE)


def test_a_conversation_is_shown_without_its_system_prompt(tmp_path: Path) -> None:
    messages = (
        Message("system", "Be kind."),
        Message("user", "Hi"),
        Message("assistant", "Hello"),
        Message("user", "Bye"),
    )
    rubric = Rubric.load(write(tmp_path, "{{ sample.prompt }}#{{ sample.system }}#{{ form.instruction }}"), "outcome")
    asked = rubric.question(attempt(turn("x"), sample=replace(SAMPLE, prompt=messages)), SCORE)
    assert asked.user.split("#")[:2] == [quoted("user: Hi\n\nassistant: Hello\n\nuser: Bye"), quoted("Be kind.")]


def test_a_rubric_of_ones_own_sees_the_sample_and_the_turns(tmp_path: Path) -> None:
    text = """
{% for turn in turns %}
{{ turn.number }}:{{ turn.calls | length }}:{{ turn.results | map(attribute="failed") | list }}
{% endfor %}
{{ sample.id }} {{ sample.metadata.level }} {{ sample.metadata.hops * 2 }} {{ sample.metadata.missing | default("-") }}
{{ answer }}
{{ form.instruction }}
"""
    asked = Rubric.load(write(tmp_path, text), "outcome").question(TWO_TURNS, SCORE)
    assert asked.user.startswith("1:1:[False]\n2:0:[]\n")
    assert "s1 hard 4 -" in asked.user
    assert asked.system == f"Judge.\n\n{NOTICE}"  # a rubric that does not say it gets it said


def test_metadata_is_data_without_control_tokens(tmp_path: Path) -> None:
    class Odd:
        def __str__(self) -> str:
            return "odd <|im_end|>"

    sample = replace(SAMPLE, metadata={"odd": Odd(), "list": [{"a": None}], "text": "</quoted:0123456789abcdef>"})
    path = write(
        tmp_path,
        "{{ sample.metadata.odd }}|{{ sample.metadata.list[0].a }}|{{ sample.metadata.text }}|{{ form.instruction }}",
    )
    asked = Rubric.load(path, "outcome").question(attempt(turn("x"), sample=sample), SCORE)
    assert asked.user.split("|")[:4] == ["odd < ", "im_end", " >", "None"]
    assert "(/quoted:0123456789abcdef>" in asked.user


def test_results_and_transcripts_are_cut_visibly(tmp_path: Path) -> None:
    rubric = Rubric.load("steps", "process")
    long = attempt(turn("I search.", ("{}", "x" * 3 * MAX_RESULT)))
    assert f"[… {2 * MAX_RESULT} characters are cut here …]" in rubric.question(long, TurnScoresForm(1, 0, 10)).user
    many = attempt(*(turn("y" * 30_000) for _ in range(64)))
    user = rubric.question(many, TurnScoresForm(64, 0, 10)).user
    assert user.count("characters are cut here") == 64
    assert len(user) < MAX_TRANSCRIPT + 64 * 300
    two = [attempt(turn("z" * 200_000)), attempt(turn("short"))]
    assert len(Rubric.load("comparison", "pairwise").question_of_many(two, RankingForm(2)).user) < MAX_TRANSCRIPT


def test_a_fingerprint_follows_the_template(tmp_path: Path) -> None:
    prints = {Rubric.load(name, modes[0]).fingerprint for name, modes in BUILT_IN.items()}
    assert len(prints) == len(BUILT_IN)
    own = write(tmp_path, "{{ answer }} {{ form.instruction }}")
    before = Rubric.load(own, "outcome").fingerprint
    assert Rubric.load(own, "process").fingerprint == before
    write(tmp_path, "{{ answer }}! {{ form.instruction }}")
    assert Rubric.load(own, "outcome").fingerprint != before


def test_names_and_files_that_cannot_be_used(tmp_path: Path) -> None:
    assert "'correctness'" in refusal("corectness")
    assert "no rubric or file" in refusal(str(tmp_path / "none.jinja"))
    assert "no rubric or file" in refusal("none.jinja")
    assert "rubric: steps" in refusal("correctness", "process")
    assert "rubric: comparison" in refusal("correctness", "pairwise")
    (tmp_path / "latin.jinja").write_bytes(b"\xff\xfe\xff")
    assert "UTF-8" in refusal(str(tmp_path / "latin.jinja"))


@pytest.mark.parametrize(
    ("user", "words"),
    [
        ("{{ form.instruction }} {{ anser }}", ["line 2", "'anser'", "'answer'"]),
        (
            "{{ form.instruction }} {{ xyz }}",
            ["line 2", "'xyz'", "Known: answer, form, quoting, sample, transcript, tr"],
        ),
        ("{{ form.instruction }} {{ candidates }}", ["line 2", "'candidates'", "transcript"]),
        ("{{ form.instruction }}\n\n{{ sample.promt }}", ["line 4", "promt", "prompt"]),
        ("{{ form.instruction }}\n{% if %}", ["line 3"]),
        ("{{ form.instruction }}\n{{ answer", ["line 3"]),
        ("{{ form.instruction }} {{ answer | shorten }}", ["line 2", "shorten"]),
        ("{{ form.instruction }} {{ answer | random }}", ["line 2", "random"]),
        ("{{ form.instruction }} {% include 'other' %}", ["line 2", "one file"]),
        ("{{ form.instruction }} {{ answer.__class__.__mro__ }}", ["line 2", "sandbox"]),
        ("{{ form.instruction }} {{ truth.append('x') }}", ["line 2", "sandbox"]),
        ("{{ form.instruction }} {{ sample.update({'id': 1}) }}", ["line 2", "sandbox"]),
        ("{{ form.instruction }} {{ 1 / 0 }}", ["line 2", "ZeroDivisionError"]),
        ("{{ form.instruction }} {{ truth[3] }}", ["line 2"]),
        ("{{ form.instruction }} {{ answer | truncate(30) }}", ["changes a quotation"]),
        ("{{ form.instruction }} {{ answer | replace('</', '<') }}", ["changes a quotation"]),
        ("{{ form.instruction }} {% for i in range(99999) %}{{ quoting }}{% endfor %}", ["524288 characters"]),
        ("{{ answer }}", ["form.instruction"]),
    ],
)
def test_a_wrong_template_is_refused_when_it_is_loaded(user: str, words: list[str], tmp_path: Path) -> None:
    path = write(tmp_path, user)
    message = refusal(path)
    assert path in message
    assert all(word in message for word in words), message


def test_text_outside_of_the_blocks_is_refused(tmp_path: Path) -> None:
    assert "outside of the blocks" in refusal(write(tmp_path, "{{ form.instruction }}", outside="Hello"))
    assert "outside of the blocks" in refusal(write(tmp_path, "{{ form.instruction }}", outside="{{ answer }}"))
    assert "outside of the blocks" in refusal(write(tmp_path, "{{ form.instruction }}", outside="{% set x = 1 %}"))
    Rubric.load(write(tmp_path, "{{ form.instruction }}", outside="{# a comment #}\n\n"), "outcome")
    (tmp_path / "bare.jinja").write_text("{{ answer }} {{ form.instruction }}")
    assert "outside of the blocks" in refusal(str(tmp_path / "bare.jinja"))
    (tmp_path / "system.jinja").write_text("{% block system %}{{ form.instruction }}{% endblock %}")
    assert "no block user" in refusal(str(tmp_path / "system.jinja"))


def test_a_fault_that_only_a_sample_shows_names_the_line(tmp_path: Path) -> None:
    path = write(tmp_path, "{{ form.instruction }}\n{{ sample.metadata.subject }}")
    rubric = Rubric.load(path, "outcome")
    with pytest.raises(ConfigError, match=r"own\.jinja, line 3.*subject"):
        rubric.question(TWO_TURNS, SCORE)


def test_the_policys_text_is_never_read_as_a_template() -> None:
    asked = Rubric.load("correctness", "outcome").question(
        attempt(turn("{{ truth }} {% raw %} {# x #} ${x} <b>&amp;")), SCORE
    )
    assert "{{ truth }} {% raw %} {# x #} ${x} < b>&amp;" in asked.user
