"""A rubric: a template of questions to the judge, compiled and rendered in Jinja's sandbox."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from traceback import extract_tb
from typing import Any

from jinja2 import StrictUndefined, Template, TemplateError, meta, nodes
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from rlfactory_core.errors import ConfigError, nearest
from rlfactory_core.rewards import last_answer
from rlfactory_core.tools import to_text
from rlfactory_core.types import Message, Sample, StopReason, ToolCall, Trajectory, Turn
from rlfactory_judge.contract import Question
from rlfactory_judge.forms import Form
from rlfactory_judge.options import SINGLE, Mode
from rlfactory_judge.rubrics.quoting import MAX_QUOTED, NOTICE, harmless, quoted, whole_quotations

BLOCKS = ("system", "user")
MAX_PROMPT = 524_288  # characters of a rendered block
MAX_RESULT = 4_096  # characters of one tool result or call
MAX_TRANSCRIPT = 131_072  # characters of all quotations of a transcript, or of all candidates
_LEAST = 256  # minimum characters of each piece
_MAX_DEPTH = 8  # of metadata
# Of expressions in a template, besides jinja's own.
_FAILURES = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError)
BUILT_IN: Mapping[str, tuple[Mode, ...]] = {
    "correctness": ("outcome",),
    "helpfulness": ("outcome",),
    "steps": ("process",),
    "comparison": ("ranking", "pairwise"),
}
_OF_ONE = ("sample", "truth", "answer", "transcript", "turns", "form", "quoting")
_OF_MANY = ("sample", "truth", "candidates", "form", "quoting")


def compile_template(source: str, place: str, known: Collection[str]) -> tuple[Template, set[str]]:
    """The template, checked as far as possible without data, and the variables that it uses, which must be ``known``.

    Raises:
        ConfigError: its syntax is wrong, or it has an unknown variable, text outside of its blocks, no block ``user``,
            or no instruction about the form of the answer. The message names ``place``.
    """
    environment = ImmutableSandboxedEnvironment(
        undefined=StrictUndefined, autoescape=False, trim_blocks=True, lstrip_blocks=True, cache_size=0
    )
    del environment.globals["lipsum"], environment.filters["random"]  # equal questions must have equal texts
    try:
        tree = environment.parse(source, filename=place)
        used = meta.find_undeclared_variables(tree)
        if problem := next(_problems(tree, known, used - environment.globals.keys()), None):
            raise _refused(place, *problem)
        code = environment.compile(source, name=place, filename=place)
        return environment.template_class.from_code(environment, code, dict(environment.globals)), used
    except TemplateError as error:
        raise _refused(place, getattr(error, "lineno", 0), f"{_sentence(error)} Mend the template.") from error


def _refused(place: str, line: int, what: str) -> ConfigError:
    """The error of a rubric; line 0: of none in particular."""
    return ConfigError(f"The rubric {place}{f', line {line}' if line else ''}: {what}")


def _sentence(error: BaseException) -> str:
    return f"{str(error.args[0] if error.args else error).rstrip('.')}."


def render_block(template: Template, block: str, data: Mapping[str, Any]) -> str:
    """The stripped text of a block; empty if the template has no such block.

    Raises:
        ConfigError: a value is missing, the sandbox refuses an operation, the text is too long, or a quotation is cut.
    """
    place = str(template.name)
    if block not in template.blocks:
        return ""
    try:
        text = "".join(template.blocks[block](template.new_context(dict(data)))).strip()
    except (TemplateError, *_FAILURES) as error:
        what = "The sandbox forbids it." if isinstance(error, SecurityError) else _existing(data)
        raise _refused(place, _line(error, template), f"{type(error).__name__}: {_sentence(error)} {what}") from error
    if len(text) > MAX_PROMPT:
        raise _refused(place, 0, f"block {block} renders more than {MAX_PROMPT} characters. Loop over less.")
    if not whole_quotations(text):
        what = f"block {block} changes a quotation, so that its end is lost. Put quoted values in as they are, without "
        raise _refused(place, 0, f"{what}filters that cut or replace.")
    return text


def _problems(tree: nodes.Template, known: Collection[str], used: set[str]) -> Iterator[tuple[int, str]]:
    """Lines of a template, and what is wrong with them."""
    for name in sorted(used - {*known}):
        line = next((node.lineno for node in tree.find_all(nodes.Name) if node.name == name), 1)
        yield line, f"there is no {name!r}. {nearest(name, known)}"
    for other in tree.find_all((nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)):
        yield other.lineno, "a rubric is one file; include, import and extends are not there."
    for node in tree.body:
        # An expression counts as text.
        text = "".join(getattr(part, "data", "{{ }}") for part in node.nodes) if isinstance(node, nodes.Output) else "?"
        if not isinstance(node, nodes.Block) and text.strip():
            what = "it stands outside of the blocks. Put everything into "
            yield node.lineno, what + "{% block system %}…{% endblock %} and {% block user %}…{% endblock %}."
    if "user" not in {block.name for block in tree.find_all(nodes.Block)}:
        yield 0, "it has no block user. Add {% block user %}…{% endblock %}."
    if "form" not in used:
        yield 0, "it does not tell the judge how to answer. Add {{ form.instruction }} at the end."


def _line(error: BaseException, template: Template) -> int:
    """The template's line, which the traceback has only for the compiled code; 0 if unknown."""
    lines = [trace.lineno or 0 for trace in extract_tb(error.__traceback__) if trace.filename == template.name]
    return template.get_corresponding_lineno(lines[-1]) if lines else 0


def _existing(data: Mapping[str, Any]) -> str:
    shown = (
        f"{name} ({', '.join(value)})" if isinstance(value, dict) and value else name for name, value in data.items()
    )
    return "There is: " + ", ".join(shown) + "."


def default_rubric(mode: Mode) -> str:
    """A mode's default rubric: the first built-in one for it."""
    return next(name for name, modes in BUILT_IN.items() if mode in modes)


class _Anything(dict[str, Any]):
    """Metadata with every key, for the test rendering without a sample."""

    def __missing__(self, key: str) -> _Anything:
        return _Anything()


@dataclass(frozen=True, slots=True)
class Rubric:
    """A checked template. `load` makes one."""

    name: str  # the built-in's name, or the file
    mode: Mode
    fingerprint: str  # a hash of the template and the quotation, which identifies what a calibration measured
    _template: Template
    _quotes: bool  # the template itself explains quotations

    @classmethod
    def load(cls, name_or_path: str, mode: Mode) -> Rubric:
        """Load a built-in rubric by name, or a Jinja file. It is rendered once with an example, to find errors early.

        Raises:
            ConfigError: the name is unknown or for another mode, the file cannot be read, or the template is wrong.
        """
        source = _source(name_or_path, mode)
        template, used = compile_template(source, name_or_path, _OF_ONE if mode in SINGLE else _OF_MANY)
        digest = hashlib.sha256("\0".join((source, NOTICE)).encode()).hexdigest()[:16]
        rubric = cls(name_or_path, mode, digest, template, "quoting" in used)
        example = one_turn("What is 6 times 7?", "42", ("42",))
        shared = _shared(example.sample)
        shared["sample"]["metadata"] = _Anything()
        try:
            attempts = rubric._attempts([example] if mode in SINGLE else [example] * 2)
            rubric._rendered({**shared, **attempts}, "A number.")
        except ConfigError as error:  # metadata without real values makes some expressions fail
            if not (isinstance(error.__cause__, (TypeError, ValueError)) and "metadata" in source):
                raise
        return rubric

    def question(self, trajectory: Trajectory, form: Form) -> Question:
        """The question about one trajectory (modes outcome and process); raises as `render_block`."""
        return self.question_of_many([trajectory], form)

    def question_of_text(self, *, prompt: str, answer: str, truth: Sequence[str], form: Form) -> Question:
        """The question about an answer without a trajectory, taken as the text of a single turn."""
        return self.question_of_many([one_turn(prompt, answer, truth)], form, answer=quoted(answer))

    def question_of_many(self, trajectories: Sequence[Trajectory], form: Form, **more: str) -> Question:
        """The question about several attempts at one sample, numbered from 1 in the given order (the other modes)."""
        data = {**_shared(trajectories[0].sample), **self._attempts(trajectories), **more}
        return Question(*self._rendered(data, form.instruction), form)

    def _attempts(self, trajectories: Sequence[Trajectory]) -> dict[str, Any]:
        budget = MAX_TRANSCRIPT // len(trajectories)  # characters of each transcript, and of each answer
        views = []
        for one in trajectories:
            turns = turn_views(one.turns, budget)
            answer = quoted(final_answer(one), min(MAX_QUOTED, budget))
            views.append({"answer": answer, "transcript": transcript(turns), "turns": turns})
        if self.mode in SINGLE:
            return views[0]
        return {"candidates": [{"number": number, **view} for number, view in enumerate(views, 1)]}

    def _rendered(self, data: Mapping[str, Any], instruction: str) -> tuple[str, str]:
        seen = {**data, "form": {"instruction": instruction}, "quoting": NOTICE}
        system, user = (render_block(self._template, block, seen) for block in BLOCKS)
        return (system if self._quotes else f"{system}\n\n{NOTICE}".strip()), user


def _shared(sample: Sample) -> dict[str, Any]:
    answer = sample.answer
    is_one = isinstance(answer, (str, bytes, Mapping)) or not isinstance(answer, Iterable)
    truth = () if answer is None else (answer,) if is_one else answer
    return {"sample": sample_view(sample), "truth": [quoted(to_text(item)) for item in truth]}


def one_turn(prompt: str, answer: str, truth: Sequence[str]) -> Trajectory:
    """A trajectory of a single turn with the answer."""
    sample = Sample("text", prompt, tuple(truth))
    return Trajectory(sample, 0, (Turn((), (), (), Message("assistant", answer)),), StopReason.FINAL_ANSWER)


def _source(name_or_path: str, mode: Mode) -> str:
    if name_or_path in BUILT_IN:
        if mode not in BUILT_IN[name_or_path]:
            fitting = " or ".join(name for name, modes in BUILT_IN.items() if mode in modes)
            raise ConfigError(
                f"The rubric {name_or_path} is for mode {' or '.join(BUILT_IN[name_or_path])}, and the mode is {mode}. "
                f"Set rubric: {fitting}, or give a Jinja file of your own."
            )
        place = resources.files("rlfactory_judge.rubrics") / "templates" / f"{name_or_path}.jinja"
        return place.read_text(encoding="utf-8")
    path = Path(name_or_path).expanduser()
    if not path.is_file():
        raise ConfigError(f"There is no rubric or file {name_or_path!r}. {nearest(name_or_path, BUILT_IN)}")
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"The rubric {name_or_path} cannot be read as UTF-8 text: {error}.") from error


def final_answer(trajectory: Trajectory) -> str:
    """What an agent of the user's own gave, else the policy's last ``<answer>``, else its last message; or empty."""
    answer = last_answer(trajectory)
    if answer is not None or not trajectory.turns or trajectory.stop is StopReason.AGENT_FAILED:
        return answer or ""
    return trajectory.turns[-1].message.content


def sample_view(sample: Sample) -> dict[str, Any]:
    """The sample: id, prompt and system prompt (quoted), and its metadata as plain values."""
    shown = [message for message in sample.messages if message.role != "system"]
    prompt = "\n\n".join(f"{message.role}: {message.content}" for message in shown)
    system = "\n\n".join(message.content for message in sample.messages if message.role == "system")
    return {
        "id": harmless(sample.id),
        "prompt": quoted(shown[0].content if len(shown) == 1 else prompt, MAX_TRANSCRIPT),
        "system": quoted(system, MAX_TRANSCRIPT) if system else "",
        "metadata": plain_data(sample.metadata),
    }


def turn_views(turns: Sequence[Turn], budget: int = MAX_TRANSCRIPT) -> list[dict[str, Any]]:
    """Each turn: number, text and reasoning, calls and results. The longest pieces are cut until all fit the budget."""
    pieces = [len(turn.message.content) for turn in turns]
    pieces += [len(_call(call)) for turn in turns for call in turn.message.tool_calls]
    pieces += [len(result.content) for turn in turns for result in turn.results]
    limit = MAX_QUOTED
    while limit > _LEAST and sum(min(size, limit) for size in pieces) > budget:
        limit //= 2
    return [_turn_view(number, turn, limit) for number, turn in enumerate(turns, 1)]


def transcript(views: Sequence[Mapping[str, Any]]) -> str:
    """All turns as text: a heading for each piece, followed by the piece as a quotation."""
    return "\n\n".join("\n".join(_turn_lines(view)) for view in views)


def plain_data(value: object, depth: int = 0) -> Any:
    """Data without methods: dicts, lists, numbers, and texts without control tokens; anything else as its text."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if depth < _MAX_DEPTH and isinstance(value, Mapping):
        return {str(key): plain_data(item, depth + 1) for key, item in value.items()}
    if depth < _MAX_DEPTH and isinstance(value, (list, tuple)):
        return [plain_data(item, depth + 1) for item in value]
    return harmless(str(value))


def _turn_view(number: int, turn: Turn, limit: int) -> dict[str, Any]:
    message = turn.message
    short = min(limit, MAX_RESULT)
    return {
        "number": number,
        "text": quoted(message.content, limit),
        "reasoning": quoted(message.reasoning, limit) if message.reasoning else "",
        "calls": [quoted(_call(call), short) for call in message.tool_calls],
        "results": [
            {"content": quoted(result.content, short), "failed": result.fault is not None} for result in turn.results
        ],
        "cut_off": turn.finish == "length",
    }


def _turn_lines(view: Mapping[str, Any]) -> list[str]:
    number = view["number"]
    lines = [f"Turn {number}, the model's text:", view["text"]]
    for call in view["calls"]:
        lines += [f"Turn {number}, a tool call of the model:", call]
    for result in view["results"]:
        said = "the tool's refusal" if result["failed"] else "the tool's result"
        lines += [f"Turn {number}, {said}:", result["content"]]
    if view["cut_off"]:
        lines.append(f"(Turn {number} was cut off by the limit on its length.)")
    return lines


def _call(call: ToolCall) -> str:
    """A call as text. The name is the model's text too and may be unknown."""
    return f"{call.name} {call.arguments_text}"
