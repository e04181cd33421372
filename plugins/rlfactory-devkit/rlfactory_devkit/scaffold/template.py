"""The templates of new plugins, and how files are made from them.

A template is a folder beside this file, combined with the folder ``common``. A file that ends with ``.jinja`` is
rendered and loses that ending; any other file is copied. ``PACKAGE`` in a path becomes the package's name. Jinja's
marks are ``<< … >>`` and ``<% … %>``, so that the files may contain Jinja, YAML and TOML themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from rlfactory_core import __version__
from rlfactory_core.errors import UsageError, nearest
from rlfactory_devkit.scaffold.names import Names

COMMON = "common"
_FOLDER = Path(__file__).with_name("templates")
_ENDING = ".jinja"


@dataclass(frozen=True, slots=True)
class Template:
    """One kind of plugin."""

    name: str
    summary: str  # what is made, in a few words
    module: str  # of the entry point, within the package
    extras: str = "local"  # of rlfactory-core that the plugin depends on
    file: str = ""  # within the package; of this one alone `rlfactory new my_task.py` makes a plugin


TEMPLATES: Mapping[str, Template] = {
    item.name: item
    for item in (
        Template("tool-task", "a task with a tool that is a Python function", "task", file="task.py"),
        Template("agent", "a task that an agent of your own plays", "task", extras="local,agents", file="task.py"),
        Template("mcp-task", "a task whose tool is an MCP server", "plugin", extras="local,mcp"),
        Template("env", "a task with an environment of its own: state, a tool, a reward", "task", file="task.py"),
        Template("verifier", "a verifier, and a task that is rewarded by it", "plugin"),
        Template("chat-format", "a chat format, and a task that is played in it", "plugin", extras="local,devkit"),
        Template("engine", "an engine, and a task that it learns in seconds", "plugin", extras="local,devkit"),
    )
}
DEFAULT = "tool-task"


def template(name: str) -> Template:
    """The template of that name."""
    if name not in TEMPLATES:
        raise UsageError(f"There is no template '{name}'. {nearest(name, TEMPLATES)}")
    return TEMPLATES[name]


def render(wanted: Template, names: Names) -> dict[str, str]:
    """The files of a new plugin: text by path, relative to the project's folder."""
    environment = Environment(
        variable_start_string="<<",
        variable_end_string=">>",
        block_start_string="<%",
        block_end_string="%>",
        comment_start_string="<#",
        comment_end_string="#>",
        trim_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 - source code, not HTML
    )
    major, minor = __version__.split(".")[:2]
    values = {
        "name": names.name,
        "package": names.package,
        "class_name": names.class_name,
        "part": names.part,
        "template": wanted,
        "core": f">={major}.{minor},<{int(major) + 1}",  # up to the next that may break the plugin
    }
    files: dict[str, str] = {}
    for folder in (_FOLDER / COMMON, _FOLDER / wanted.name):
        for source in folder.rglob("*"):
            if not source.is_file() or "__pycache__" in source.parts:
                continue
            text, path = source.read_text(encoding="utf-8"), str(source.relative_to(folder))
            if path.endswith(_ENDING):
                text, path = environment.from_string(text).render(values), path.removesuffix(_ENDING)
            files[path.replace("PACKAGE", names.package)] = text
    return dict(sorted(files.items()))


def render_file(wanted: Template, names: Names) -> str:
    """The plugin as one file."""
    if not wanted.file:
        single = ", ".join(item.name for item in TEMPLATES.values() if item.file)
        raise UsageError(
            f"The template '{wanted.name}' is more than one file. For a folder, leave the .py out of the name; "
            f"as one file there is: {single}."
        )
    return render(wanted, names)[f"{names.package}/{wanted.file}"]
