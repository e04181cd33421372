"""Compile a rubric in Jinja's sandbox, render its blocks within limits, and report errors with their lines."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rlfactory_core.errors import ConfigError, nearest
from rlfactory_judge.rubrics.quoting import whole_quotations

if TYPE_CHECKING:
    from jinja2 import Template
    from jinja2.nodes import Template as Tree

BLOCKS = ("system", "user")
MAX_PROMPT = 524_288  # characters of a rendered block
# Of expressions in a template, besides jinja's own.
_FAILURES = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError)


def compile_template(source: str, place: str, known: Collection[str]) -> Template:
    """The template, checked as far as possible without data.

    Args:
        place: the file, or the built-in's name, for messages.
        known: the variables that it may use.

    Raises:
        ConfigError: its syntax is wrong, or it has an unknown variable, text outside of its blocks, no block ``user``,
            or no instruction about the form of the answer.
    """
    from jinja2 import StrictUndefined, TemplateError, TemplateSyntaxError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        undefined=StrictUndefined, autoescape=False, trim_blocks=True, lstrip_blocks=True, cache_size=0
    )
    del environment.globals["lipsum"], environment.filters["random"]  # equal questions must have equal texts
    try:
        tree = environment.parse(source, filename=place)
        _check(tree, place, known, environment.globals)
        code = environment.compile(source, name=place, filename=place)
        return environment.template_class.from_code(environment, code, dict(environment.globals))
    except TemplateSyntaxError as error:
        raise ConfigError(f"The rubric {place}, line {error.lineno}: {error.message}. Mend the template.") from error
    except TemplateError as error:
        raise ConfigError(f"The rubric {place} cannot be used: {error}.") from error


def render_block(template: Template, block: str, data: Mapping[str, Any]) -> str:
    """The stripped text of a block; empty if the template has no such block.

    Raises:
        ConfigError: a value is missing, the sandbox refuses an operation, the text is too long, or a quotation is cut.
    """
    from jinja2.exceptions import SecurityError, TemplateError, UndefinedError

    place = template.name or "template"
    if block not in template.blocks:
        return ""
    parts: list[str] = []
    size = 0
    try:
        for part in template.blocks[block](template.new_context(dict(data))):
            parts.append(part)
            size += len(part)
            if size > MAX_PROMPT:
                raise ConfigError(
                    f"The rubric {place}: block {block} renders more than {MAX_PROMPT} characters. Loop over less, or "
                    "shorten the sample's prompt."
                )
    except UndefinedError as error:
        raise ConfigError(f"The rubric {_where(error, template)}: {error.message}. {_existing(data)}") from error
    except SecurityError as error:
        raise ConfigError(f"The rubric {_where(error, template)}: {error.message} The sandbox forbids it.") from error
    except ConfigError:
        raise
    except (TemplateError, *_FAILURES) as error:
        what = f"{type(error).__name__}: {error}"
        raise ConfigError(
            f"The rubric {_where(error, template)} cannot be rendered ({what}). {_existing(data)}"
        ) from error
    text = "".join(parts).strip()
    if not whole_quotations(text):
        raise ConfigError(
            f"The rubric {place}: block {block} changes a quotation, so that its end is lost. Put quoted values in as "
            "they are, without filters that cut or replace."
        )
    return text


def uses(source: str, name: str) -> bool:
    """Whether a valid template uses a variable."""
    from jinja2 import Environment, nodes

    return any(node.name == name for node in Environment(autoescape=False).parse(source).find_all(nodes.Name))  # noqa: S701


def _check(tree: Tree, place: str, known: Collection[str], jinjas_own: Collection[str]) -> None:
    from jinja2 import meta, nodes

    loose = meta.find_undeclared_variables(tree)
    for name in sorted(loose - {*known, *jinjas_own}):
        line = next((node.lineno for node in tree.find_all(nodes.Name) if node.name == name), 1)
        raise ConfigError(f"The rubric {place}, line {line}: there is no {name!r}. {nearest(name, known)}")
    for other in tree.find_all((nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)):
        raise ConfigError(
            f"The rubric {place}, line {other.lineno}: a rubric is one file; include, import and extends are not there."
        )
    for node in tree.body:
        text = "".join(part.data for part in _texts(node)) if isinstance(node, nodes.Output) else None
        if not isinstance(node, nodes.Block) and (text is None or text.strip()):
            raise ConfigError(
                f"The rubric {place}, line {node.lineno}: it stands outside of the blocks. Put everything into "
                "{% block system %}…{% endblock %} and {% block user %}…{% endblock %}."
            )
    if "user" not in {block.name for block in tree.find_all(nodes.Block)}:
        raise ConfigError(f"The rubric {place} has no block user. Add {{% block user %}}…{{% endblock %}}.")
    if "form" not in loose:
        raise ConfigError(
            f"The rubric {place} does not tell the judge how to answer. Add {{{{ form.instruction }}}} at the end."
        )


def _texts(output: Any) -> Iterator[Any]:
    """The constant parts of an output; an expression counts as text."""
    from jinja2 import nodes

    for part in output.nodes:
        yield part if isinstance(part, nodes.TemplateData) else nodes.TemplateData("{{ … }}")


def _where(error: BaseException, template: Template) -> str:
    """The place with the template's line, which the traceback has only for the compiled code."""
    place, line, trace = template.name or "template", 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == place:
            line = template.get_corresponding_lineno(trace.tb_lineno)
        trace = trace.tb_next
    return f"{place}, line {line}" if line else place


def _existing(data: Mapping[str, Any]) -> str:
    shown = (
        f"{name} ({', '.join(value)})" if isinstance(value, dict) and value else name for name, value in data.items()
    )
    return "There is: " + ", ".join(shown) + "."
