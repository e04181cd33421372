"""The official verdict on one output, from the text or the calls that a model gave."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from rlfactory_benchmarks.bfcl import data
from rlfactory_benchmarks.bfcl.data import Entry
from rlfactory_benchmarks.bfcl.official import DOTS, UNDERSCORES, official

__all__ = ["OutputVerdict", "check_output"]

Form = Literal["text", "functions", "calls"]


@dataclass(frozen=True, slots=True)
class OutputVerdict:
    """Whether an output is right, and the official kind and text of its first error."""

    valid: bool
    error_type: str = ""
    error: str = ""


def check_output(entry: Entry | str, output: Any, *, form: Form, dots: bool | None = None) -> OutputVerdict:
    """What the leaderboard's harness says of an output; its own code decodes and checks it.

    Args:
        entry: the question, or its id.
        output: as a result file has it; of a conversation a list of turns, which are lists of steps.
            ``text``: of a model that is prompted, such as ``[f(a=1)]``; as the harness
            does, arithmetic in it is evaluated. ``functions``: of a model with function calling,
            ``[{name: arguments as JSON text}]``, or its text if it calls nothing. ``calls``: decoded already,
            ``[{name: {parameter: value}}]``, in a conversation ``["name(parameter=value)"]``.
        dots: whether the model writes the dots of functions' names; else they are underscores. None: a text has them.

    Raises:
        UsageError: there is no such question.
        MissingExtraError: ``bfcl-eval`` is not installed.
    """
    question = data.entry(entry) if isinstance(entry, str) else entry
    model = DOTS if (form == "text" if dots is None else dots) else UNDERSCORES
    try:
        found = _evaluated(question, output, _Decoder(form), model)
    except Exception as error:  # noqa: BLE001 the harness itself ends here; a policy can provoke it, so it is no fault
        return OutputVerdict(valid=False, error_type="checker:raised", error=f"{type(error).__name__}: {error}")
    if found["valid"]:
        return OutputVerdict(valid=True)
    first = found["error"] if question.conversation else found
    text = str(first.get("error_message", first.get("error")))
    return OutputVerdict(valid=False, error_type=first["error_type"], error=text)


@dataclass(frozen=True, slots=True)
class _Decoder:
    """Decodes outputs as `OpenAICompletionsHandler` of the harness does, for which it imports a client."""

    form: Form

    def decode_ast(self, output: Any, language: Any, has_tool_call_tag: bool) -> Any:
        """The calls of a question."""
        if self.form == "text":
            return official().handling.default_decode_ast_prompting(output, language, has_tool_call_tag)
        if self.form == "calls":
            return output
        names = [next(iter(call)) for call in output]
        return [{name: json.loads(call[name])} for name, call in zip(names, output, strict=True)]

    def decode_execute(self, output: Any, has_tool_call_tag: bool) -> Any:
        """The calls of a conversation's step."""
        code = official().handling
        if self.form == "text":
            return code.default_decode_execute_prompting(output, has_tool_call_tag)
        return output if self.form == "calls" else code.convert_to_function_call(output)


def _evaluated(question: Entry, output: Any, decoder: _Decoder, model: str) -> Any:
    code, category = official().runner, question.category
    row, truth = dict(question.row), list(question.truth)  # it removes the functions from a conversation's row
    if question.conversation:
        with official().simulators() as name:
            return code._evaluate_single_multi_turn_entry(decoder, question.id, output, truth, row, name, category)
    if code.is_relevance_or_irrelevance(category):
        return code._evaluate_single_relevance_entry(decoder, question.id, output, row, model, category)
    name = "JAVA" if code.is_java(category) else "JAVASCRIPT" if code.is_js(category) else "PYTHON"
    language, written = code.Language[name], code.ReturnFormat[name]
    return code._evaluate_single_ast_entry(
        decoder, question.id, output, truth, row, model, category, language, written
    )  # fmt: skip
