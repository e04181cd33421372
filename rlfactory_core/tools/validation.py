"""Checks the arguments of a call against the tool's JSON schema, with error messages for the model.

The work of a check is bounded, see `bounded_validator`.

`jsonschema-rs` 0.60 was tried instead and not taken: arguments that are nested 20,000 deep end the process with a
segmentation fault where the schema refers to itself, and one unknown reference refuses a whole tool.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from jsonschema import Draft202012Validator, SchemaError, ValidationError
from jsonschema.exceptions import UnknownType
from jsonschema.validators import (
    Draft4Validator,
    Draft6Validator,
    Draft7Validator,
    Draft201909Validator,
    validator_for,
)
from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]
from referencing.exceptions import Unresolvable

from rlfactory_core.errors import UsageError, nearest
from rlfactory_core.tools.bounded_validator import TooMuchWorkError, bounded, errors, unknown_names
from rlfactory_core.types import ToolSpec
from rlfactory_core.utils.display import shortened
from rlfactory_core.utils.json_types import with_json_types

_log = logging.getLogger(__name__)

_DRAFTS: tuple[Any, ...] = (
    Draft202012Validator,
    Draft201909Validator,
    Draft7Validator,
    Draft6Validator,
    Draft4Validator,
)  # draft 3 accepts almost any schema, so it is used only if the schema names it
_AS_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=str)  # dumps would make one for each call
_MAX_PROBLEMS = 4  # in one message; a model corrects few at a time
_MAX_NAME = 64  # characters of an unknown name that are quoted and compared
_MAX_SHOWN = 60  # characters of a wrong value or name


class ArgumentChecker:
    """Checks arguments against a tool's schema.

    The schema is read in the draft that it names. If it names none, or is not valid in that draft, it is read in the
    newest draft in which it is valid. Types may have Python's names, see `utils.json_types`.

    Raises:
        UsageError: the schema is not valid in any draft.
    """

    def __init__(self, spec: ToolSpec) -> None:
        schema = with_json_types(spec.parameters)
        draft = _find_draft(schema)
        if isinstance(draft, SchemaError):
            raise UsageError(
                f"tool {spec.name}: its parameters are not a JSON schema at {draft.json_path}: {draft.message}"
            ) from draft
        # This registry has the drafts' own schemas and fetches nothing, because a schema may name any address.
        self._validator = bounded(draft)(schema, registry=REGISTRY)
        self._name = spec.name
        self._broken = False

    def problem(self, arguments: Mapping[str, Any], *, quick: bool = False) -> str | None:
        """The problems of the arguments in one line, or None. May take a second.

        Raises:
            TooMuchWorkError: it takes more than a millisecond, and ``quick`` is set.
        """
        value = dict(arguments)
        try:
            _AS_JSON.encode(value).encode()
            found = errors(self._validator, value, quick=quick)
            if not found:
                return None
            found.sort(key=lambda error: len(error.absolute_path))
            return "; ".join(islice((text for error in found for text in _problems(error)), _MAX_PROBLEMS)) or None
        except RecursionError:
            return "the arguments are nested too deeply"
        except TooMuchWorkError:
            if quick:
                raise
            return "the arguments are too complicated to be checked; use simpler ones"
        except (ValueError, OverflowError):  # a lone surrogate, a number of thousands of digits, NaN
            return "the arguments hold text or numbers that cannot be written as JSON"
        except (Unresolvable, UnknownType, re.error) as error:
            # The schema has a broken reference. The tool checks its arguments.
            if not self._broken:
                self._broken = True
                _log.warning("tool %s: its JSON schema cannot be checked whole: %s", self._name, error)
            return None


def as_json(value: object, limit: int = _MAX_SHOWN) -> str:
    """The value as JSON, cut to ``limit`` characters."""
    return shortened(json.dumps(value, ensure_ascii=False, default=str), limit)


def unknown_tool(name: str, known: Iterable[str]) -> str:
    """The message for a call of a tool that does not exist."""
    name = name[:_MAX_NAME]
    return f"there is no tool {as_json(name)}. {nearest(name, known)}"


def schema_error(schema: Mapping[str, Any]) -> SchemaError | None:
    """Why the schema is not valid in any draft, in the words of the draft that it names; None if it is."""
    found = _find_draft(schema)
    return found if isinstance(found, SchemaError) else None


def _find_draft(schema: Mapping[str, Any]) -> Any:
    """The draft in which the schema is valid, or the error."""
    named = isinstance(schema.get("$schema"), str)
    first = validator_for(schema, default=Draft202012Validator) if named else Draft202012Validator
    problem: SchemaError | None = None
    for draft in (first, *_DRAFTS):
        try:
            # Formats are not checked, because a regular expression may be JavaScript's.
            draft.check_schema(schema, format_checker=None)
        except SchemaError as error:
            problem = problem or error
        else:
            return draft
    return problem


def _problems(error: ValidationError) -> Iterator[str]:
    instance: Any = error.instance
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path).lstrip(".")
    subject = f"'{path[:_MAX_SHOWN]}'" if path else "the arguments object"
    schema: Mapping[str, Any] = error.schema if isinstance(error.schema, Mapping) else {}
    within = f" in {subject}" if path else ""
    properties: Mapping[str, Any] = schema.get("properties", {})
    rule: Any = error.validator_value
    if error.validator == "required" and isinstance(rule, list):
        (missing,) = rule  # as `bounded_validator` reports it
        yield f"argument '{missing}'{_described(properties.get(missing))} is missing{within}"
    elif error.validator == "additionalProperties" and rule is False:
        for name in unknown_names(instance, schema):
            yield f"unknown argument {as_json(name)}{within}. {nearest(name[:_MAX_SHOWN], properties)}"
    elif error.validator == "type":
        kinds = " or ".join(map(str, rule)) if isinstance(rule, list) else rule
        yield f"{subject} must be of type {kinds}, not {as_json(instance)}"
    elif error.validator == "enum":
        yield f"{subject} must be one of {as_json(rule, 200)}, not {as_json(instance)}"
    elif not error.validator:  # the schema is just ``false``
        yield f"{subject} holds what is not allowed: {as_json(instance)}"
    else:
        yield f"{subject} must fit {as_json({str(error.validator): rule}, 200)}, but is {as_json(instance)}"


def _described(schema: object) -> str:
    if not isinstance(schema, Mapping):
        return ""
    parts = [str(schema[key]) for key in ("type", "description") if key in schema]
    return f" ({': '.join(parts)})" if parts else ""
