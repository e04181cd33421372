"""Sections of a configuration, and the plain data that they are made from.

A section stands in the room that uses it, as ``settings.py``; `rlfactory_core.config` composes them.
Every mistake of a user is a `ConfigError` in plain words; a pydantic message never reaches the terminal.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Protocol, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from rlfactory_core.errors import ConfigError
from rlfactory_core.settings.mistakes import UNKNOWN, Key, explain, key_of
from rlfactory_core.settings.plain import dump_yaml, load_yaml, merge, parse_override

__all__ = [
    "EngineSection",
    "File",
    "Fraction",
    "Natural",
    "Positive",
    "RunSections",
    "Section",
    "dump_yaml",
    "load_yaml",
    "merge",
    "parse_override",
    "validate_section",
]

Model = TypeVar("Model", bound=BaseModel)
Positive = Annotated[int, Field(gt=0)]
Natural = Annotated[int, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]


def _absolute(path: Path) -> Path:
    """A saved configuration is also read from other folders, by a resume and by other processes."""
    return path.expanduser().absolute()


File = Annotated[Path, AfterValidator(_absolute)]


class Section(BaseModel):
    """Base of all sections, also of a plugin's own ``Config``. A text below a field is the field's description."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, use_attribute_docstrings=True)


class RunSections(Protocol):
    """What an `EngineSection` reads of a run's configuration."""

    @property
    def engine_name(self) -> str:
        """The engine's name without its distribution."""

    @property
    def plugins(self) -> Mapping[str, Mapping[str, Any]]:
        """The sections that plugins register, by their names."""


class EngineSection(Section):
    """Keys that only one engine has; registered like any section, under the engine's name.

    In the configuration they are ``ENGINE.KEY``, and not ``plugins.ENGINE.KEY``.
    """

    options: ClassVar[tuple[str, ...]] = ()
    """Keys that ``rlfactory run`` has an option for: ``--batch-size`` for ``batch_size``."""
    after_dashes: ClassVar[str] = ""
    """The key, a list, that gets the words after ``--`` on that command line."""

    @classmethod
    def of(cls, config: RunSections) -> Self:
        """The engine's section of a configuration."""
        return cls.model_validate(config.plugins.get(config.engine_name, {}))


def validate_section(model_cls: type[Model], data: Mapping[str, Any], prefix: str = "") -> Model:
    """Make a section from plain data; ``prefix`` is its dotted key in the whole configuration, for the messages.

    Raises:
        ConfigError: all problems at once, each with its full key, what was found and what is expected.
    """
    try:
        return model_cls.model_validate(dict(data))
    except ValidationError as error:
        start: Key = tuple(prefix.split(".")) if prefix else ()
        found = error.errors(include_url=False)
        unknown = [key_of(start, item) for item in found if item["type"] == UNKNOWN]
        raise ConfigError("\n".join(explain(model_cls, start, item) for item in found), unknown=unknown) from None
