"""Arguments checked against a tool's JSON schema before the call, with words that the model can learn from."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from jsonschema import Draft202012Validator, SchemaError, ValidationError
from jsonschema.exceptions import UnknownType
from jsonschema.validators import (
    Draft3Validator,
    Draft4Validator,
    Draft6Validator,
    Draft7Validator,
    Draft201909Validator,
    validator_for,
)
from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]
from referencing.exceptions import Unresolvable

from rlfactory_core.errors import UsageError, nearest
from rlfactory_core.tools.plain_schema import plainly_fits
from rlfactory_core.types import ToolSpec

_log = logging.getLogger(__name__)

_DRAFTS: tuple[Any, ...] = (
    Draft202012Validator,
    Draft201909Validator,
    Draft7Validator,
    Draft6Validator,
    Draft4Validator,
)  # draft 3 takes almost anything: only where a schema names it
_MAX_PROBLEMS = 4  # a model mends one thing at a time
_MAX_SHOWN = 60  # characters of a wrong value or name


class ArgumentChecker:
    """A tool's schema, compiled.

    A schema is read as the draft that it names; one that names none, or is not what it says, as the newest draft that
    it fits: servers write what their libraries write.

    Raises:
        UsageError: the schema fits no draft.
    """

    def __init__(self, spec: ToolSpec) -> None:
        schema = dict(spec.parameters)
        draft = _draft(spec.name, schema)
        # This registry has the drafts' own schemas and fetches nothing: a schema from elsewhere must not make us.
        self._validator = draft(schema, registry=REGISTRY)
        self._fits = plainly_fits(schema if draft is not Draft3Validator else False)
        self._name = spec.name
        self._broken = False

    def problem(self, arguments: Mapping[str, Any]) -> str | None:
        """What is wrong with the arguments, in one line; None where nothing is."""
        value = dict(arguments)
        if self._fits(value):
            return None
        try:
            json.dumps(value, ensure_ascii=False, default=str).encode()
            errors = sorted(self._validator.iter_errors(value), key=lambda error: len(error.absolute_path))
            return "; ".join(islice((text for error in errors for text in _say(error)), _MAX_PROBLEMS)) or None
        except RecursionError:
            return "the arguments are nested too deeply"
        except (ValueError, OverflowError):  # a lone surrogate, a number of thousands of digits
            return "the arguments hold text or numbers that cannot be written as JSON"
        except (Unresolvable, UnknownType, re.error) as error:
            # A reference into nothing, another language's regular expression: the tool itself will have to judge.
            if not self._broken:
                self._broken = True
                _log.warning("tool %s: its JSON schema cannot be checked whole: %s", self._name, error)
            return None


def shown(value: object, limit: int = _MAX_SHOWN) -> str:
    """A value as JSON, cut to be quoted."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= limit else text[:limit] + "…"


def _draft(name: str, schema: Mapping[str, Any]) -> Any:
    named = isinstance(schema.get("$schema"), str)
    first = validator_for(schema, default=Draft202012Validator) if named else Draft202012Validator
    problem: SchemaError | None = None
    for draft in (first, *_DRAFTS):
        try:
            # Without the formats: a regular expression may be JavaScript's.
            draft.check_schema(schema, format_checker=None)
        except SchemaError as error:
            problem = problem or error
        else:
            return draft
    assert problem is not None
    raise UsageError(
        f"tool {name}: its parameters are not a JSON schema at {problem.json_path}: {problem.message}"
    ) from problem


def _say(error: ValidationError) -> Iterator[str]:
    instance: Any = error.instance
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path).lstrip(".")
    subject = f"'{path[:_MAX_SHOWN]}'" if path else "the arguments object"
    schema: Mapping[str, Any] = error.schema if isinstance(error.schema, Mapping) else {}
    within = f" in {subject}" if path else ""
    properties: Mapping[str, Any] = schema.get("properties", {})
    rule: Any = error.validator_value
    if error.validator == "required" and isinstance(rule, list):
        # jsonschema reports each missing name apart, and names it only within its message
        missing = next((name for name in rule if error.message.startswith(repr(name))), "")
        yield f"argument '{missing}'{_described(properties.get(missing))} is missing{within}"
    elif error.validator == "additionalProperties" and rule is False:
        patterns = schema.get("patternProperties", {})
        for name in instance:
            if name not in properties and not any(re.search(pattern, name) for pattern in patterns):
                yield f"unknown argument {shown(name)}{within}. {nearest(name[:_MAX_SHOWN], properties)}"
    elif error.validator == "type":
        kinds = " or ".join(map(str, rule)) if isinstance(rule, list) else rule
        yield f"{subject} must be of type {kinds}, not {shown(instance)}"
    elif error.validator == "enum":
        yield f"{subject} must be one of {shown(rule, 200)}, not {shown(instance)}"
    elif not error.validator:  # the schema is just ``false``
        yield f"{subject} holds what is not allowed: {shown(instance)}"
    else:
        yield f"{subject} must fit {shown({str(error.validator): rule}, 200)}, but is {shown(instance)}"


def _described(schema: object) -> str:
    if not isinstance(schema, Mapping):
        return ""
    parts = [str(schema[key]) for key in ("type", "description") if key in schema]
    return f" ({': '.join(parts)})" if parts else ""
