"""Sections of a configuration, and the plain data that they are made from.

A section stands in the room that uses it, in a module ``settings``; `rlfactory_core.config` composes them.
"""

from rlfactory_core.settings.plain import dump_yaml, load_yaml, merge, parse_override
from rlfactory_core.settings.section import (
    EngineSection,
    File,
    Fraction,
    Natural,
    Positive,
    RunSections,
    Section,
    validate_section,
)

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
