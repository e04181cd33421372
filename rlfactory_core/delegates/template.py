"""A prompt with holes, which become a tool's arguments.

Not `str.format`: what a model writes is put in as text and never read as a template, and a hole is a name and nothing
else, no attribute, index or format.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from string import Formatter
from typing import Any

from rlfactory_core.errors import UsageError, nearest


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """Text with ``{name}`` fields; ``{{`` and ``}}`` stand for a brace. Made by `read_template`."""

    pieces: tuple[tuple[str, str | None], ...]  # a literal, and the field that follows it, if one does

    @property
    def fields(self) -> tuple[str, ...]:
        """The names, each once, in the order in which they first stand."""
        return tuple(dict.fromkeys(field for _, field in self.pieces if field is not None))

    def fill(self, values: Mapping[str, str]) -> str:
        return "".join(literal + (values[field] if field is not None else "") for literal, field in self.pieces)

    def parameters(self, descriptions: Mapping[str, str]) -> dict[str, Any]:
        """The JSON schema of an object with one string for each field, all of them required.

        Raises:
            UsageError: a description of a field that the text does not have.
        """
        for name in descriptions:
            if name not in self.fields:
                raise UsageError(f"parameters: the prompt has no {{{name}}}. {nearest(name, self.fields)}")
        properties = {
            name: {"type": "string", **({"description": descriptions[name]} if name in descriptions else {})}
            for name in self.fields
        }
        return {
            "type": "object",
            "properties": properties,
            "required": list(self.fields),
            "additionalProperties": False,
        }


def read_template(text: str) -> PromptTemplate:
    """Read ``text``.

    Raises:
        UsageError: a brace that is neither part of a plain ``{name}`` nor doubled, or no field at all.
    """
    pieces = []
    try:
        for literal, field, spec, conversion in Formatter().parse(text):
            if field is not None and (spec or conversion or not field.isidentifier()):
                raise UsageError(f"the prompt holds '{{{field}…}}'; {_EXPECTED}")
            pieces.append((literal, field))
    except UsageError:
        raise
    except ValueError as error:
        raise UsageError(f"the prompt cannot be read ({error}); {_EXPECTED}") from error
    template = PromptTemplate(tuple(pieces))
    if not template.fields:
        raise UsageError(f"the prompt has no field, so the model could ask nothing of this tool; {_EXPECTED}")
    return template


_EXPECTED = "expected {name} for each argument, as in 'Summarise {text}', and other braces doubled."
