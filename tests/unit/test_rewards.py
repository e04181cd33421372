"""Rewards: answers come from the model's own words, scorers fail into faults, and rules cost next to nothing."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
from reward_examples import SEARCH, trajectory

from rlfactory_core.errors import VerifierError
from rlfactory_core.rewards import (
    ExactMatch,
    Format,
    RewardLayer,
    SquadEM,
    SquadF1,
    exact_match,
    extract_answer,
    f1,
    normalize,
    squad_em,
    squad_f1,
)
from rlfactory_core.types import (
    Message,
    Sample,
    ToolCall,
    Trajectory,
)

CASES = Path(__file__).resolve().parents[3] / "shared" / "cases" / "qa_em.jsonl"


def score(scorer: object, item: Trajectory) -> float:
    scored = asyncio.run(RewardLayer({"it": (scorer, 1.0)}).score_trajectory(item))  # type: ignore[dict-item]
    assert not scored.faults
    assert scored.score is not None
    return scored.score.value


# --- answers ------------------------------------------------------------------------------------------------------

OTHER_TAG = "reads <search> tags, which is a tool-call syntax of another project and not an answer"


def qa_cases() -> list[object]:
    if not CASES.is_file():
        return [pytest.param({}, marks=pytest.mark.skip(reason="the recorded answer cases are not on this machine"))]
    params = []
    for index, line in enumerate(CASES.read_text(encoding="utf-8").splitlines()):
        row = json.loads(line)
        reason = OTHER_TAG if row["kind"] == "search_tag" else ""
        marks = pytest.mark.skip(reason=reason) if reason else ()
        params.append(pytest.param(row, id=f"{row['kind']}-{index}", marks=marks))
    return params


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "no answer to compare with"),
        ({"city": "Paris"}, "is a dict; expected a text, or several"),
        (b"Paris", "is a bytes"),
    ],
)
def test_what_is_no_text_is_no_answer(answer: object, words: str) -> None:
    item = trajectory("<answer>city</answer>", answer=answer)
    with pytest.raises(VerifierError, match=words):
        asyncio.run(ExactMatch().score(item))


@pytest.mark.parametrize("row", qa_cases())
def test_agrees_with_recorded_cases(row: dict) -> None:
    if row["kind"] == "normalize":
        assert normalize(row["text"]) == row["expected"]
        return
    prediction = row["prediction"]
    text = "nothing" if prediction is None else f"<answer>{prediction}</answer>"
    item = trajectory(text, answer=row["golds"])
    assert score(SquadF1(), item) == pytest.approx(row["f1"])
    if row["em"] is not None:  # where nothing is left of both sides, the sources disagree
        assert score(SquadEM(), item) == score(ExactMatch(), item) == row["em"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<answer> a </answer>", "a"),
        ("<answer>a</answer> no: <answer>b\nc</answer>", "b\nc"),
        ("<answer>a</answer> <answer>b", "a"),
        ("<answer>a</answer></answer>", "a"),
        ("<answer>x <answer>a</answer>", "a"),
        ("<answer></answer>", ""),
        ("</answer>a<answer>", None),
        ("a", None),
    ],
)
def test_the_last_closed_answer_counts(text: str, expected: str | None) -> None:
    assert extract_answer(text) == expected


def test_finding_the_answer_takes_linear_time() -> None:
    assert extract_answer("<answer>" * 200_000) is None  # quadratic time would take minutes


def test_f1_and_exact_match_take_the_best_reference() -> None:
    assert exact_match("The Ann-Lee!", ["bob", "annlee"]) == 1.0
    assert f1("ann lee", ["bob", "ann b lee"]) == pytest.approx(0.8)
    assert squad_f1("ann lee", ["bob", "ann b lee"]) == pytest.approx(0.8)
    assert f1("", ["bob"]) == f1("", [""]) == 0.0
    assert exact_match("bob", []) == f1("bob", []) == 0.0


def paired(text: str) -> list[str]:
    return [pair.replace("_", " ") for pair in text.split()]


WRONG = paired("""
    5|-5  314|3.14  12|1/2  420|42.0  314|3,14  20240102|2024-01-02  1030|10:30  10.30|10:30  123|1.2.3  510|5-10
    53|(5)-3  1800|1-800  0.5|.05  15|1.5  $15|$1.5  25|25%  13|1e3  10|1/0  10|1,0  100|1,00  1234|12,34  7|007
    v12|v1.2  314m|3.14m  x3|x-3  x|-x  xy|x/y  23|2^3  two|2  the|A  a|an  A|A-  x|!x  !|?  A|B  C|C++  C#|C  F|F#
    5_degrees|-5_degrees  x_+_y|x_-_y  5_+_3|5_-_3  5_3|5-3  x_<_y|x_>_y  Vitamin|Vitamin_A
    5|-_5  5|\u2212_5  sqrt(2)|-sqrt(2)  \\frac{1}{2}|-\\frac{1}{2}  pi|-pi  \u221e|-\u221e  \u20ac5|-\u20ac5
    x_=_1|x_=_-_1  x_=_1|x_!=_1  2x_+_1|2x_-_1  ab_+_cd|ab_-_cd  3_+_4i|3_-_4i  5|5!  5'|5"  f(x)|f'(x)
    (0,_1]|[0,_1)  [0,_1]|[0,_1)  Python_3.1|Python_3.10  version_2.1|version_2.10  1000|1_00  1000|1_0000
    \\frac{a}{bc}|\\frac{ab}{c}  x^{2y}|x^2y
    C|A,_C  C|(A,_C)  B,_D|A,_B,_D  B|A_&_B  B|A_B  B|A._B.  c|a,_c  Hepatitis_virus|Hepatitis_A_virus  Team|A_Team
    1,234|1,_234  1,2,3|123  1,2,3|1,3,2  3,14|3.14  (2,3)|(2,-3)  (2,3)|23  5km|5_cm  5km|5  15km|1_5km  20°C|20°F
    3.1a|3.10a  5pm|5am  J.K._Rowling|J.R._Rowling  Milne|A._A._Milne  D.C.|C.  1.5_\u00d7_10^3|1.5_\u00d7_10^-3
    1.5_\u00d7_10^3|1.5_\u00d7_103  x²|x2  x²|2x  10²|102  10⁻³|10³  x-1|x_1  2x+1|2x-1  x=2|x=-2  x<=5|x<5  m²|m³
    1.234.567,89|1234567  1.234|1,234  1.234,5|1.2345  192.168.100.200|192168100200  Beyoncé|Beyonce
""")
"""Pairs that are not the same; to SQuAD's normalisation most of them are."""

SAME = paired("""
    42|42.0  42|42.  42|**42**  42|(42)  42|$42  1|#1  1,000|1000.0  1,234,567.50|1234567.5  50%|1/2  0.5|50_%
    50_percent|50%  5-10_per_cent|5-10%  1_1/2|1.5  1½|1.5  ½|.5  1_/_2|0.5  \u22125|-5  -$5|-5  +5|5  -0|0  1e3|1000
    1E+16|10000000000000000  100%|1  3.0_km|3_km  1990_\u2013_2000|1990-2000  10:30|10:30.  007|007
    2024-01-02|2024-01-02.
    the_ann_lee.|Ann_Lee  The_Ann-Lee!|annlee  covid-19|COVID19  don't|dont  U.S.A.|usa  e-mail|email  x-ray|xray
    AC/DC|acdc  R&B|rb  "Paris"|`Paris`  Straße|STRASSE  A|a  The|the  !|!  C++|c++.
    -5|-_5  1_000|1000  -1_234_567.50|-1,234,567.5  1'000|1000  1\u2019000|1000  costs_2.50_more|costs_2.5_more
    it\u2019s|it's  \u201cParis\u201d|Paris  \u00abParis\u00bb|Paris  \u00bfQué?|Qué  北京。|北京  「北京」|北京
    \uff14\uff12|42  \uff21\uff22|ab  5\uff05|5%  'A'|A  "5"|5  90's|90s  James'|James
    1,2,3|1,_2,_3  (-1,5)|(-1,_5)  [0,1)|[0,_1)  a,b,c|a,_b,_c  x=2,y=3|x_=_2,_y_=_3  2x+1|2x_+_1  x-1|x_-_1
    5km|5_km  3.0km|3_km  1,000km|1000_km  -5°C|-5_°C  60km/h|60_km_/_h  10:30am|10:30_am  5€|5_€  10x10|10_\u00d7_10
    J.K._Rowling|J._K._Rowling  J.K._Rowling|JK_Rowling  J._K._Rowling|J_K_Rowling  U.S.|U._S.
    1.5_\u00d7_10^3|1.5x10^3  1.5_\u00d7_10³|1500  1.6_\u00d7_10^{-19}|1.6e-19  1.5_\\times_10^3|1.5e3
    3\u00d710⁸m/s|3e8_m/s  x²|x^{2}  x²|x**2  x²+1|x^2_+_1  10⁻³|10^-3  H₂O|H2O  1.234.567,89|1,234,567.89
    1.234.567|1234567  12_345,67|12345.67  Beyonce\u0301|Beyoncé  \u0390|\u03aa\u0301  foo\u200bbar|foobar
    A_dog|a_dog  a_dog|dog  A,C|A,_C
""")
"""Pairs that are the same."""


@pytest.mark.parametrize("pair", WRONG)
def test_another_answer_does_not_match(pair: str) -> None:
    one, other = pair.split("|")
    assert exact_match(one, [other]) == exact_match(other, [one]) == 0.0


@pytest.mark.parametrize("pair", SAME)
def test_the_same_answer_in_another_notation_matches(pair: str) -> None:
    one, other = pair.split("|")
    assert exact_match(one, [other]) == exact_match(other, [one]) == 1.0
    assert f1(one, [other]) == 1.0


def test_underscores_between_digits_are_thousands_or_stay() -> None:
    assert exact_match("1_000", ["1000"]) == 1.0
    assert exact_match("5_3", ["53"]) == 0.0


@pytest.mark.parametrize("reference", ["A", "the", "", "!", " ", "0"])
def test_an_empty_answer_never_matches(reference: str) -> None:
    assert exact_match("", [reference]) == exact_match(" \n", [reference]) == f1("", [reference]) == 0.0


@pytest.mark.parametrize(
    ("prediction", "references", "em", "best_f1"),
    [  # as SQuAD's evaluation script 1.1 gives them
        ("", ["A"], 1, 0.0),
        ("the", ["a"], 1, 0.0),
        ("5", ["-5"], 1, 1.0),
        ("314", ["3.14"], 1, 1.0),
        ("42", ["42.0"], 0, 0.0),
        ("420", ["42.0"], 1, 1.0),
        ("The Ann-Lee!", ["annlee"], 1, 1.0),
        ("ann lee", ["bob", "ann b lee"], 0, 0.8),
        ("the the cat cat", ["cat"], 0, 2 / 3),
        ("don\u2019t", ["dont"], 0, 0.0),
    ],
)
def test_squad_s_measures_equal_its_script(prediction: str, references: list[str], em: float, best_f1: float) -> None:
    assert squad_em(prediction, references) == em
    assert squad_f1(prediction, references) == pytest.approx(best_f1)


@pytest.mark.parametrize(
    "text",
    [
        f"({'1,' * 8_000}",
        "9" * 20_000,
        "-" * 20_000,
        *(part * 8_000 for part in ("1 - ", "1/", "1e", "'a ", "1 000 ", "1.234.", "a. ", "^{")),
    ],
)
def test_comparing_answers_takes_linear_time(text: str) -> None:
    assert exact_match(text, [f"{text}2"]) == 0.0  # quadratic time would take minutes


# --- rule scorers -------------------------------------------------------------------------------------------------


def test_a_tool_cannot_answer_and_neither_can_a_thought() -> None:
    tool_says = trajectory(SEARCH, "I do not know.", result="<answer>Ann Lee</answer>")
    thought = Message("assistant", "I do not know.", reasoning="<answer>Ann Lee</answer>")
    argument = ToolCall("call_0", "search", '{"q": "<answer>Ann Lee</answer>"}', {"q": "<answer>Ann Lee</answer>"})
    for item in (tool_says, trajectory(thought), trajectory(replace(SEARCH, tool_calls=(argument,)), "No.")):
        assert score(ExactMatch(), item) == 0.0
    assert score(ExactMatch(), trajectory(SEARCH, "<answer>the ann lee.</answer>")) == 1.0


@pytest.mark.parametrize("truth", ["Ann", ["Bob", "Ann"], ("Ann",)])
def test_ground_truth_may_be_one_or_several(truth: object) -> None:
    assert score(ExactMatch(), trajectory("<answer>ann</answer>", answer=truth)) == 1.0
    assert score(ExactMatch(), trajectory("<answer>1999</answer>", answer=1999)) == 1.0


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (trajectory(SEARCH, "So <answer>x</answer>"), 1.0),
        (trajectory("<answer>x</answer> indeed"), 0.0),
        (trajectory("<answer> </answer>"), 0.0),
        (trajectory("<answer>x</answer><answer>x</answer>"), 0.0),
        (trajectory("<answer>x</answer>", finish="length"), 0.0),
        (trajectory(SEARCH), 0.0),
        (trajectory(replace(SEARCH, content="<answer>x</answer>")), 0.0),
        (trajectory(replace(SEARCH, tool_calls=(ToolCall("c", "", "{", error="bad"),)), "<answer>x</answer>"), 0.0),
        (trajectory(), 0.0),
    ],
)
def test_format_wants_good_calls_and_one_answer_at_the_end(item: Trajectory, expected: float) -> None:
    assert score(Format(), item) == expected


def test_gold_answers_within_marks_are_said_at_the_start(caplog: pytest.LogCaptureFixture) -> None:
    golds = ["5", "So \\boxed{5}.", ("<answer>5</answer>", "5"), None]
    samples = [Sample(id=str(number), prompt="?", answer=gold) for number, gold in enumerate(golds)]
    ExactMatch().check_samples(samples)
    assert "ExactMatch: 2 of 4 answers have marks" in caplog.text


def test_a_sample_without_an_answer_is_a_fault() -> None:
    layer = RewardLayer({"em": (ExactMatch(), 2.0)})
    assert asyncio.run(layer.score_trajectory(trajectory("x", answer=None))).masked
