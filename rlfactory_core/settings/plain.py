"""Configurations as plain data: read from YAML and from overrides, merged, and written as YAML."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from rlfactory_core.errors import ConfigError

_FLOAT = re.compile(
    r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?$|[-+]?[0-9]+[eE][-+]?[0-9]+$|[-+]?\.(inf|Inf|INF)$|\.(nan|NaN|NAN)$"
)
_BOOL = re.compile(r"(true|True|TRUE|false|False|FALSE)$")
_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)$")
_FLOAT_TAG = "tag:yaml.org,2002:float"


class _Loader(yaml.SafeLoader):
    """Reads the scalars of YAML 1.2. PyYAML's own 1.1 reads ``3e-4`` as text, ``no`` as false, ``1:30`` as 90.

    `ruamel.yaml` 0.19 was tried instead and not taken: its import takes 180 ms against 32 ms, ``2024-01-01`` becomes a
    date and ``1_000`` a number, and it refuses the text ``=``.
    """

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"the key {key.value!r} is given twice", problem_mark=key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", _BOOL, list("tTfF"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"(~|null|Null|NULL|)$"), ["~", "n", "N", ""])
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", _INT, list("-+0123456789"))
_Loader.add_implicit_resolver(_FLOAT_TAG, _FLOAT, list("-+.0123456789"))


class Replacement(dict[str, Any]):
    """A mapping that `merge` puts in the place of an earlier one, instead of adding its keys."""


class _Dumper(yaml.SafeDumper):
    """Quotes a string that YAML 1.1 *or* 1.2 would read as something else, so that any reader gets it back."""

    def represent_str(self, data: str) -> yaml.ScalarNode:
        """Unicode's line breaks come back as plain ones unless they are escaped."""
        escaped = '"' if any(mark in data for mark in "\x85\u2028\u2029") else None
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=escaped)


_Dumper.add_representer(str, _Dumper.represent_str)
_Dumper.add_implicit_resolver(_FLOAT_TAG, _FLOAT, list("-+.0123456789"))
_Dumper.add_representer(Replacement, _Dumper.represent_dict)


def parse_override(text: str) -> dict[str, Any]:
    """``train.lr=3e-4`` as nested data, ``{"train": {"lr": 0.0003}}``.

    The value is a YAML scalar, or a list or mapping in YAML's flow style (``[a, b]``, ``{a: 1}``); nothing is null. An
    empty mapping removes all keys that were given before.

    Raises:
        ConfigError: no ``=``, an empty part in the key, or a list or mapping that is not closed.
    """
    key, equals, value = text.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        raise ConfigError(f"{text!r} is not an override. Expected KEY=VALUE with a dotted key, such as train.lr=3e-4.")
    nested: Any = _parse_value(key, value.strip())
    nested = Replacement() if nested == {} else nested
    for part in reversed(parts):
        nested = {part: nested}
    return dict(nested)


def load_yaml(path: Path) -> dict[str, Any]:
    """The mapping that a YAML file holds; an empty file is an empty mapping.

    Raises:
        ConfigError: a file that is missing, not YAML or not a mapping; the message has the line.
    """
    try:
        data = _Loader(path.read_text(encoding="utf-8")).get_single_data()
    except OSError as error:
        raise ConfigError(f"Cannot read the configuration {path}: {error.strerror}.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not YAML: {' '.join(str(error).split())}.") from error
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigError(f"{path} holds a {type(data).__name__}; expected keys and values, such as 'seed: 1'.")
    return data


def merge(*sources: Mapping[str, Any]) -> dict[str, Any]:
    """One nested mapping; later values win, mappings are merged key by key, everything else is replaced whole.

    ``merge(merge(a, b), c)`` equals ``merge(a, merge(b, c))``: where a mapping follows a null, a list or another value,
    it replaces the mapping of an earlier source.
    """
    merged: dict[str, Any] = {}
    for source in sources:
        for key, value in source.items():
            if not isinstance(value, Mapping):
                merged[key] = value
                continue
            before = merged.get(key)
            if isinstance(before, Mapping) and not isinstance(value, Replacement):
                whole, replaces = merge(before, value), isinstance(before, Replacement)
            else:
                whole, replaces = merge(value), key in merged or isinstance(value, Replacement)
            merged[key] = Replacement(whole) if replaces else whole
    return merged


def dump_yaml(data: Mapping[str, Any]) -> str:
    """Plain data as YAML that `load_yaml` turns into equal data, and any other reader too."""
    return yaml.dump(dict(data), Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def _parse_value(key: str, text: str) -> Any:
    """Flow style is parsed; anything else is one scalar, so that ``#`` and ``: `` in a text mean nothing."""
    if text[:1] in ("[", "{", '"', "'"):
        try:
            return _Loader(text).get_single_data()
        except yaml.YAMLError as error:
            raise ConfigError(f"{key}: {text!r} is not a YAML value: {' '.join(str(error).split())}.") from error
    loader: Any = _Loader("")
    tag = loader.resolve(yaml.ScalarNode, text, (True, False))
    return loader.construct_object(yaml.ScalarNode(tag, text))
