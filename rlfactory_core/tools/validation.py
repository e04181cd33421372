"""Arguments checked against a tool's JSON schema before the call, with words that the model can learn from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from jsonschema import Draft202012Validator, SchemaError, ValidationError
from referencing import Registry
from referencing.exceptions import Unresolvable

from rlfactory_core.errors import UsageError, nearest
from rlfactory_core.types import ToolSpec

_MAX_PROBLEMS = 4  # a model mends one thing at a time
_MAX_SHOWN = 60  # characters of a wrong value or name


class ArgumentChecker:
    """A tool's schema, compiled.

    Raises:
        UsageError: the schema itself is not one.
    """

    def __init__(self, spec: ToolSpec) -> None:
        schema = dict(spec.parameters)
        try:
            Draft202012Validator.check_schema(schema)
        except SchemaError as error:
            raise UsageError(
                f"tool {spec.name}: its parameters are not a JSON schema at {error.json_path}: {error.message}"
            ) from error
        # An empty registry: a schema from elsewhere must not make the validator fetch its references from the net.
        self._validator = Draft202012Validator(schema, registry=Registry())

    def problem(self, arguments: Mapping[str, Any]) -> str | None:
        """What is wrong with the arguments, in one line; None where nothing is."""
        try:
            json.dumps(dict(arguments), ensure_ascii=False, default=str).encode()
            errors = sorted(self._validator.iter_errors(dict(arguments)), key=lambda error: len(error.absolute_path))
            return "; ".join(islice((text for error in errors for text in _say(error)), _MAX_PROBLEMS)) or None
        except RecursionError:
            return "the arguments are nested too deeply"
        except (ValueError, OverflowError):  # a lone surrogate, a number of thousands of digits
            return "the arguments hold text or numbers that cannot be written as JSON"
        except Unresolvable as error:
            raise UsageError(f"a tool's JSON schema refers to what it does not hold: {error}") from error


def shown(value: object, limit: int = _MAX_SHOWN) -> str:
    """A value as JSON, cut to be quoted."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= limit else text[:limit] + "…"


def _say(error: ValidationError) -> Iterator[str]:
    instance: Any = error.instance
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path).lstrip(".")
    subject = f"'{path[:_MAX_SHOWN]}'" if path else "the arguments object"
    schema: Mapping[str, Any] = error.schema if isinstance(error.schema, Mapping) else {}
    within = f" in {subject}" if path else ""
    properties: Mapping[str, Any] = schema.get("properties", {})
    rule: Any = error.validator_value
    if error.validator == "required":
        # jsonschema reports each missing name apart, and names it only within its message
        missing = next((name for name in rule if error.message.startswith(repr(name))), "")
        yield f"argument '{missing}'{_described(properties.get(missing))} is missing{within}"
    elif error.validator == "additionalProperties" and rule is False:
        for name in instance:
            if name not in properties:
                yield f"unknown argument {shown(name)}{within}. {nearest(name[:_MAX_SHOWN], properties)}"
    elif error.validator == "type":
        kinds = rule if isinstance(rule, str) else " or ".join(rule)
        yield f"{subject} must be of type {kinds}, not {shown(instance)}"
    elif error.validator == "enum":
        yield f"{subject} must be one of {shown(rule, 200)}, not {shown(instance)}"
    else:
        yield f"{subject} must fit {shown({str(error.validator): rule}, 200)}, but is {shown(instance)}"


def _described(schema: object) -> str:
    if not isinstance(schema, Mapping):
        return ""
    parts = [str(schema[key]) for key in ("type", "description") if key in schema]
    return f" ({': '.join(parts)})" if parts else ""
