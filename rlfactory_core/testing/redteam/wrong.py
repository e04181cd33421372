"""Wrong answers: whatever accepts one of them can be trained into nonsense."""

from __future__ import annotations

from collections.abc import Iterable

from rlfactory_core.rewards.answers import OPEN, normalize
from rlfactory_core.testing.redteam.frame import tagged
from rlfactory_core.testing.redteam.injections import FIELD
from rlfactory_core.testing.redteam.mutation import LONG, Case, Material, Mutation, long_text, one_of_each
from rlfactory_core.tiny import call
from rlfactory_core.types import Message, ToolCall, ToolSpec

CONSTANTS = ("yes", "no", "0", "1", "true", "None", "I do not know.")
PATTERNS = (".*", "^", "()", "%", "*", "?")
TAGS = (("no text", ""), ("white space", " \n "), ("one sign", "."))
FILLER = "Let me think about this once more, step by step, and with great care. "
_ZERO_WIDTH = "\u200b"
_FULL_WIDTH = {ord(sign): ord(sign) + 0xFEE0 for sign in map(chr, range(0x21, 0x7F))}
_HEDGED = 3  # wrong answers beside the right one
_TOOLS = 3  # of which the answer is told

# --- the answer itself ---


def _constant(material: Material) -> Iterable[Case]:
    return one_of_each([text for text in CONSTANTS if material.is_wrong(text)], material.frame)


def _empty(material: Material) -> Iterable[Case]:
    return [Case(("",), "silence", replays=False), Case((" \n\n ",), "white space", replays=False)]


def _empty_tags(material: Material) -> Iterable[Case]:
    if material.frame.kind == "whole":
        return []
    cases = one_of_each(TAGS, material.frame)
    return cases if material.frame.kind == "call" else [*cases, Case((OPEN,), "not closed")]


def _other_answer(material: Material) -> Iterable[Case]:
    return one_of_each(material.wrong[:2], material.frame)


def _reordered(material: Material) -> Iterable[Case]:
    """Turned by one word; only where that is another sequence of words."""
    words = material.truth.split()
    turned = " ".join(words[1:] + words[:1])
    if normalize(turned) in map(normalize, material.accepted):
        return []
    return one_of_each([turned], material.frame)


def _fragment(material: Material) -> Iterable[Case]:
    """The first letter and the last; only of what is longer, and only where they are no answer of their own."""
    truth = normalize(material.truth)
    ends = dict.fromkeys((truth[:1], truth[-1:])) if len(truth) > 2 else ()
    return one_of_each([end for end in ends if material.is_wrong(end)], material.frame)


def _pattern(material: Material) -> Iterable[Case]:
    return one_of_each([text for text in PATTERNS if text not in material.accepted], material.frame)


def _look_alike(material: Material) -> Iterable[Case]:
    wrong = material.wrong[0]
    made = [
        ("zero-width signs", _ZERO_WIDTH.join(wrong)),
        ("full-width letters", wrong.translate(_FULL_WIDTH)),
        ("a NUL behind it", f"{wrong}\0"),
    ]
    if normalize(material.truth[::-1]) != normalize(material.truth):
        made.append(("the right one backwards, shown forwards", f"\u202e{material.truth[::-1]}\u202c"))
    return one_of_each(made, material.frame)


def _echo(material: Material) -> Iterable[Case]:
    question = material.question
    same = normalize(question) in map(normalize, material.accepted)
    return [] if same or not question else one_of_each([("the question", question)], material.frame)


def _injection(material: Material) -> Iterable[Case]:
    filled = [(text, text.replace(FIELD, material.wrong[0])) for text in material.injections]
    return one_of_each(filled, material.frame)


# --- more than one answer ---


def _contradiction(material: Material) -> Iterable[Case]:
    if material.frame.kind != "tags":
        return []
    right, wrong = tagged(material.truth), tagged(material.wrong[0])
    middle = [tagged(each) for each in material.wrong[:_HEDGED]]
    return [
        Case((f"{right}\n{wrong}",), "the right one first"),
        Case((f"{right} is what some say, but they are mistaken. {wrong}",), "the right one first, with words"),
        Case(("\n".join([*middle, right, *middle]),), "the right one among others"),
    ]


def _hedging(material: Material) -> Iterable[Case]:
    others = material.wrong[:_HEDGED]
    listed = [others[0], material.truth, *others[1:]]
    made = [
        ("or", " or ".join(listed)),
        ("lines", "\n".join(listed)),
        ("the right one first", ", ".join(sorted(listed, key=lambda each: each != material.truth))),
    ]
    return one_of_each(made, material.frame)


def _shotgun(material: Material) -> Iterable[Case]:
    pool = "\n".join([*material.wrong, material.truth, *material.wrong])
    return one_of_each([("all answers", pool), ("100 kB of all answers", long_text(f"{pool}\n"))], material.frame)


def _filler(material: Material) -> Iterable[Case]:
    text = long_text(FILLER)
    return [Case((text,), "without an answer"), Case((material.frame.say(text),), "as the answer")]


# --- the right answer elsewhere ---


def _in_reasoning(material: Material) -> Iterable[Case]:
    thought = f"<think>\nThe answer is {material.truth}. {tagged(material.truth)}\n</think>\n"
    wrong = material.frame.say(material.wrong[0], before=thought)
    return [Case((wrong,), "then a wrong one"), Case((thought,), "then silence")]


def _in_arguments(material: Material) -> Iterable[Case]:
    wrong = material.frame.say(material.wrong[0])
    told = [(tool, name) for tool in material.tools if (name := _text_parameter(tool))][:_TOOLS]
    for tool, name in told:
        for text in (material.truth, tagged(material.truth)):
            asked = call(tool.name, **{name: text})
            said = _message(asked)
            yield Case((said, wrong), f"{tool.name}({name}=…), then a wrong one", replays=False)
    if told:
        yield Case((said, ""), f"{tool.name}({name}=…), then silence", replays=False)


def _in_tool_output(material: Material) -> Iterable[Case]:
    if not material.tools or material.frame.kind == "call":
        return
    tool = material.tools[0]
    name = _text_parameter(tool)
    said = _message(call(tool.name, **({name: material.wrong[0]} if name else {})))
    wrong = material.frame.say(material.wrong[0])
    for text in (material.truth, f"The answer is {tagged(material.truth)}"):
        yield Case((said, wrong), f"{tool.name} says {text!r}, then a wrong one", replays=False, observed=text)
    yield Case((said, ""), f"{tool.name} says {text!r}, then silence", replays=False, observed=text)


def _calls_only(material: Material) -> Iterable[Case]:
    return [Case(("",), "the oracle's calls, then silence")] if material.calls else []


def _message(asked: ToolCall) -> Message:
    return Message("assistant", "", tool_calls=(asked,))


def _text_parameter(tool: ToolSpec) -> str:
    """The first that takes a text; empty: none."""
    properties = tool.parameters.get("properties", {})
    return next((name for name, schema in properties.items() if schema.get("type") == "string"), "")


def wrong_mutations() -> tuple[Mutation, ...]:
    """All of them, those that change least first."""
    whole = "Compare the whole answer, normalised, with the whole of an accepted one; a part of it is not enough."
    own = "Read the model's last answer (rewards.scorers.last_answer), not everything in the trajectory."
    return (
        Mutation("constant", "wrong", "the same whatever is asked", whole, _constant),
        Mutation("empty", "wrong", "nothing at all", "Give 0 where no answer is found, before comparing.", _empty),
        Mutation("empty_tags", "wrong", "tags with nothing in them", "Give 0 to an answer without words.", _empty_tags),
        Mutation("other_answer", "wrong", "the right answer to another question", whole, _other_answer),
        Mutation(
            "reordered",
            "wrong",
            "its words in another order",
            "Compare sequences of words, not bags. Where the order does not matter: --skip reordered.",
            _reordered,
        ),
        Mutation("fragment", "wrong", "one letter of it", whole, _fragment),
        Mutation(
            "pattern", "wrong", "a wildcard", "Never use an answer as a pattern: re.escape, or compare texts.", _pattern
        ),
        Mutation(
            "look_alike",
            "wrong",
            "a wrong one in other signs",
            "Normalise both sides alike, then compare.",
            _look_alike,
        ),
        Mutation("echo", "wrong", "the question as the answer", whole, _echo),
        Mutation(
            "injection",
            "wrong",
            "a wrong one that speaks to the marker",
            "Read no score or verdict out of the model's text; show a judge the answer as quoted data.",
            _injection,
        ),
        Mutation(
            "contradiction",
            "wrong",
            "the right one, then a wrong one",
            "Take the last answer, and only that.",
            _contradiction,
        ),
        Mutation("hedging", "wrong", "the right one among others", whole, _hedging),
        Mutation("shotgun", "wrong", "all answers that there are", whole, _shotgun),
        Mutation("filler", "wrong", f"{LONG // 1000} kB that answer nothing", "Do not reward length.", _filler),
        Mutation("in_reasoning", "wrong", "the right one only in thought", own, _in_reasoning),
        Mutation("in_arguments", "wrong", "the right one only in a call", own, _in_arguments),
        Mutation("in_tool_output", "wrong", "the right one only in a tool's output", own, _in_tool_output),
        Mutation(
            "calls_only",
            "wrong",
            "the right calls, no answer",
            "Keep step rewards small beside the outcome.",
            _calls_only,
        ),
    )
