"""Reads the files in which programs keep their MCP servers."""

from __future__ import annotations

import ast
import json
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rlfactory_core.errors import ConfigError
from rlfactory_core.settings import load_yaml


def load(path: Path) -> Any:
    """The content of a file: a Python literal (``.pydata``), YAML, TOML, or else JSON.

    Raises:
        ConfigError: it cannot be read, or is something else.
    """
    if path.suffix in (".yaml", ".yml"):
        return load_yaml(path)
    try:
        raw = path.read_bytes()
        text = raw.decode(json.detect_encoding(raw))  # Windows writes a BOM, or UTF-16
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"Cannot read the MCP configuration {path}: {error}.") from error
    kind = {".pydata": "a Python literal", ".toml": "TOML"}.get(path.suffix, "JSON")
    try:
        if path.suffix == ".pydata":
            return ast.literal_eval(text.strip())
        return tomllib.loads(text) if path.suffix == ".toml" else parse_json(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise ConfigError(f"{path} is not {kind}: {error}.") from error


def parse_json(text: str) -> Any:
    """JSON, also with comments and trailing commas, as editors write it.

    Raises:
        ValueError: it is something else, or a mapping has a key twice.
    """
    try:
        return json.loads(text, object_pairs_hook=_once)
    except json.JSONDecodeError:
        import json5  # for such files only

        return json5.loads(text, object_pairs_hook=_once)  # far slower


def _once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} is given twice")
        found[key] = value
    return found
