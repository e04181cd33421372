"""Makes a tool's specification from a Python function: names, types, defaults and descriptions.

pydantic handles the types; it also converts the model's JSON to the types of the hints (enums, dates, nested models).
Descriptions come from Google or NumPy style docstrings.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, NotRequired, cast, get_args, get_type_hints

import docstring_parser
from pydantic import ConfigDict, Field, PydanticUserError, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticSerializationError, to_jsonable_python
from typing_extensions import TypedDict

from rlfactory_core.context import ToolContext
from rlfactory_core.errors import ToolArgumentsError, UsageError
from rlfactory_core.types import ToolSpec

_UNNAMED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)


class _Untitled(GenerateJsonSchema):
    """Omits titles, because they repeat the names and cost the model tokens."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Signature:
    """What a function tool needs to know about its function."""

    spec: ToolSpec
    context_parameter: str | None  # the `ToolContext` parameter, injected and hidden from the model
    adapter: TypeAdapter[dict[str, Any]]

    def convert(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Convert JSON values to the types of the hints; omitted arguments stay omitted.

        Raises:
            ToolArgumentsError: a value does not fit its hint.
        """
        try:
            return self.adapter.validate_python(arguments)
        except ValidationError as error:
            problems = error.errors(include_url=False, include_context=False, include_input=False)
            lines = (f"{'.'.join(map(str, item['loc'])) or 'arguments'}: {item['msg']}" for item in problems[:3])
            raise ToolArgumentsError("wrong arguments: " + "; ".join(lines)) from error


_TYPED = ("type", "enum", "const", "anyOf", "oneOf", "$ref")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def undescribed(spec: ToolSpec) -> list[str]:
    """What a tool's specification lacks: its purpose, or the type of an argument."""
    parts = [] if spec.description.strip() else ["what it does: write a docstring"]
    for name, schema in spec.parameters.get("properties", {}).items():
        if isinstance(schema, Mapping) and schema.keys().isdisjoint(_TYPED):
            parts.append(f"the type of {name}: annotate it")
    return parts


def read_signature(fn: Callable[..., Any], name: str | None = None, description: str | None = None) -> Signature:
    """Read the signature, hints and docstring of a function or bound method, also if decorators wrap it.

    Raises:
        UsageError: the signature cannot be filled from a JSON object of named arguments.
    """
    where = f"tool {getattr(fn, '__qualname__', repr(fn))}"
    root = inspect.unwrap(fn)
    if not (inspect.isroutine(fn) and (inspect.isfunction(root) or inspect.ismethod(root))):
        raise UsageError(
            f"{where} is a {type(fn).__name__}; a tool is made from a function or a bound method. "
            "Write a function that calls it."
        )
    hints = _hints(fn, where)
    documented = docstring_parser.parse(inspect.getdoc(fn) or "")
    texts = {item.arg_name.split(":")[0].strip(): item.description or "" for item in documented.params}
    context_parameter: str | None = None
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(fn).parameters.values():
        hint = hints.get(parameter.name, Any)
        if hint is ToolContext or ToolContext in get_args(hint):
            context_parameter = parameter.name
        else:
            fields[parameter.name] = _field(parameter, hint, texts.get(parameter.name, ""), where)
    adapter = _adapter(fields, where)
    parameters = adapter.json_schema(schema_generator=_Untitled)
    for schema in (parameters, *parameters.get("$defs", {}).values()):
        schema.pop("title", None)
    parameters.setdefault("properties", {})
    if description is None:
        description = "\n\n".join(filter(None, (documented.short_description, documented.long_description)))
    if not _NAME.fullmatch(name or fn.__name__):
        raise UsageError(
            f"{where}: got the name {name!r}; expected letters, digits, `_`, `-` and `.`, at most 64, "
            "because models and servers accept no others."
        )
    spec = ToolSpec(name=name or fn.__name__, description=description, parameters=parameters)
    return Signature(spec, context_parameter, adapter)


def _hints(fn: Callable[..., Any], where: str) -> dict[str, Any]:
    try:
        return get_type_hints(fn, include_extras=True)
    except NameError as error:
        raise UsageError(
            f"{where}: the type {error.name!r} in its hints is not known at run time. Import it at the top of the "
            "module, not under TYPE_CHECKING and not inside a function."
        ) from error


def _field(parameter: inspect.Parameter, hint: Any, text: str, where: str) -> Any:
    """The annotation of one key of the arguments' TypedDict."""
    if parameter.kind in _UNNAMED:
        raise UsageError(f"{where}: parameter {parameter} has no name that the model could use; spell it out.")
    if parameter.name in ("self", "cls") and parameter.annotation is parameter.empty:
        raise UsageError(f"{where} is not bound to its object: make the tool from it, as in tool(self.search).")
    if isinstance(parameter.default, FieldInfo):
        raise UsageError(
            f"{where}: write Field(…) into the hint, as in {parameter.name}: Annotated[int, Field(ge=1)] = 3."
        )
    # A description of None would override one within the hint, so it is left out.
    options: dict[str, Any] = {"description": text} if text else {}
    if parameter.default is parameter.empty:
        return Annotated[hint, Field(**options)]
    if parameter.default is None:
        hint = hint | None
    with suppress(PydanticSerializationError):  # a default that JSON cannot hold is not shown
        options["json_schema_extra"] = {"default": to_jsonable_python(parameter.default)}
    return NotRequired[Annotated[hint, Field(**options)]]


def _adapter(fields: dict[str, Any], where: str) -> TypeAdapter[dict[str, Any]]:
    arguments = cast(Any, TypedDict)("Arguments", fields)
    arguments.__pydantic_config__ = ConfigDict(extra="forbid", arbitrary_types_allowed=False)
    try:
        return TypeAdapter(arguments)
    except PydanticUserError as error:
        raise UsageError(
            f"{where}: a parameter's type cannot be written as JSON ({error.message.splitlines()[0]}). "
            "Use plain types, lists, dicts, enums, dataclasses or pydantic models."
        ) from error
