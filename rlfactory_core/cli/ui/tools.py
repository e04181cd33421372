"""Prints tools: the name, the description, and the arguments as a table."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TextIO

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rlfactory_core.cli.ui.console import make_console
from rlfactory_core.tools.schema import undescribed
from rlfactory_core.types import ToolSpec

Schema = Mapping[str, Any]


def print_tools(tools: Sequence[tuple[ToolSpec, str]], stream: TextIO) -> None:
    """Print each tool with its origin, such as ``task``; with colours only on a terminal."""
    console = make_console(stream, width=None if stream.isatty() else 100)
    for number, (spec, origin) in enumerate(tools):
        if number:
            console.print()
        console.print(Text.assemble((spec.name, "bold"), (f"  ({origin})", "dim")))
        console.print(Padding(Text(spec.description.strip()), (0, 0, 0, 2), expand=False))
        if missing := undescribed(spec):
            console.print(Text(f"  The model is not told {', nor '.join(missing)}.", style="yellow"))
        if spec.parameters.get("properties"):
            console.print(_arguments(spec.parameters))
        else:
            console.print(Text("    takes no arguments", style="dim"))


def _arguments(parameters: Schema) -> Table:
    table = Table.grid(padding=(0, 3, 0, 0))
    for name, schema in parameters["properties"].items():
        facts = schema if isinstance(schema, Mapping) else {}
        default = "required" if name in parameters.get("required", ()) else "optional"
        if default == "optional" and facts.get("default") is not None:
            default = f"default {json.dumps(facts['default'], ensure_ascii=False)}"
        cells = (f"    {name}", type_text(schema, parameters), default, str(facts.get("description", "")))
        table.add_row(*(Text(cell, style="dim" if cell is default else "") for cell in cells))
    return table


def type_text(schema: Any, root: Schema) -> str:
    """The type of a JSON schema as text, such as ``string``, ``"asc" | "desc"`` or ``array of integer``."""
    return " | ".join(dict.fromkeys(_types(schema, root))) or "any"


def _types(schema: Any, root: Schema) -> Iterator[str]:
    if not isinstance(schema, Mapping):
        return
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        target = root.get("$defs", {}).get(name)
        yield from _types(target, {}) if isinstance(target, Mapping) and "enum" in target else (name,)
    elif "enum" in schema or "const" in schema:
        values = schema["enum"] if "enum" in schema else [schema["const"]]
        yield from (json.dumps(value, ensure_ascii=False) for value in values)
    elif options := schema.get("anyOf") or schema.get("oneOf"):
        for option in options:
            yield from _types(option, root)
    elif schema.get("type") == "array":
        items = type_text(schema.get("items"), root)
        yield "array" if items == "any" else f"array of {f'({items})' if ' | ' in items else items}"
    elif kind := schema.get("type"):
        yield from [kind] if isinstance(kind, str) else map(str, kind)
