"""What ``plugins info`` can tell of a plugin's options: their types in words, defaults and documentation."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, create_model

from rlfactory_core.plugins.description import describe
from rlfactory_core.plugins.options import Option, section_options, signature_options, type_text, value_text
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.settings import File, Fraction, Natural, Positive, Section


class Colour(Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (int, "int"),
        (Positive, "int > 0"),
        (Natural, "int >= 0"),
        (Fraction, "float >= 0, <= 1"),
        (Annotated[float, Field(lt=2.5)], "float < 2.5"),
        (Fraction | None, "float >= 0, <= 1 | null"),
        (File | None, "path | null"),
        (Literal["off", "disk"], "off | disk"),
        (tuple[str, ...], "list of str"),
        (list[Positive], "list of int > 0"),
        (tuple[int, str], "[int, str]"),
        (Annotated[str, Field(min_length=1, pattern="[a-z]+")], "str at least 1 long, matching [a-z]+"),
        (dict[str, Any], "mapping"),
        (Mapping[str, int], "mapping to int"),
        (Any, "anything"),
    ],
)
def test_types_are_written_as_people_write_them(annotation: Any, words: str) -> None:
    assert type_text(annotation) == words


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (1e-6, "1e-06"),
        (0.1234567890123, "0.1234567890123"),
        ("", '""'),
        ("plain words", "plain words"),
        (Path("a/b"), "a/b"),
        ((1, "b"), "[1, b]"),
        ({"a": [False]}, "{a: [false]}"),
        (Colour.RED, "red"),
    ],
)
def test_defaults_are_written_as_a_configuration_has_them(value: Any, text: str) -> None:
    assert value_text(value) == text


class Inner(Section):
    width: int = 1
    """Of what is inside."""


class Base(Section):
    kept: int = 0
    """From the base."""


class Whole(Base):
    below: int = 3
    """Below it,
    on two lines."""
    described: int = Field(4, description="in words")
    """A docstring counts less."""
    over_lines: Annotated[
        str,
        Field(min_length=1),
    ]
    """Below all its lines."""
    quiet: int = 5  # a comment describes nothing
    inner: Inner = Inner(width=7)
    maybe: Inner | None = None
    """Not always."""


def test_a_fields_documentation_is_its_description_or_the_text_below_it() -> None:
    docs = {option.key: option.doc for option in section_options(Whole)}
    assert docs == {
        "kept": "From the base.",
        "below": "Below it, on two lines.",
        "described": "in words",
        "over_lines": "Below all its lines.",
        "quiet": "",
        "inner.width": "Of what is inside.",
        "maybe": "Not always.",
        "maybe.width": "Of what is inside.",
    }


def test_sections_within_a_section_show_the_defaults_that_they_really_have() -> None:
    options = {option.key: option for option in section_options(Whole)}
    assert options["inner.width"].default == "7"
    assert (options["maybe"].type, options["maybe"].default) == ("section | null", "null")
    assert options["maybe.width"].default == "1"
    assert options["over_lines"].default is None  # has to be given


def test_a_section_without_source_is_told_without_documentation() -> None:
    made = create_model("Made", __base__=Section, level=(Positive, 3))
    assert section_options(made) == (Option("level", "int > 0", "3"),)


class Patience:
    """Waits.

    Args:
        turns: how many.
    """

    def __init__(self, turns: int, *, hard: bool = False, **rest: Any) -> None: ...


def test_a_rewards_options_are_its_arguments() -> None:
    assert signature_options(Patience) == (Option("turns", "int", None, "how many."), Option("hard", "bool", "false"))


PLUGIN = '''
from rlfactory_core import Lazy, LazyReward, Section, Task, hookimpl

class Levels(Task):
    """Levels of
    difficulty.

    More.
    """
    class Config(Section):
        level: int = 3
        """How hard."""

class Shelf(Section):
    """Where books stand."""
    boards: int = 4
    """Above each other."""

@hookimpl
def rlfactory_tasks(register):
    register("levels", Levels)
    register("made", lambda config, seed: Levels(config, seed))

@hookimpl
def rlfactory_reward_scorers(register):
    register("checked", LazyReward("pathlib:Path", "os.path:abspath", "rlfactory_core.tasks.settings:DataColumns"))
    register("untold", dict)

@hookimpl
def rlfactory_engines(register):
    register("steam", Lazy("a_package_that_is_not_there:Steam"))

@hookimpl
def rlfactory_config_sections(register):
    register("shelf", Shelf)
'''


def test_a_plugin_is_described_part_by_part(tmp_path: Path) -> None:
    (tmp_path / "levels.py").write_text(PLUGIN)
    registry = Registry([])
    found = describe(registry.load(str(tmp_path / "levels.py")))
    levels, made, checked, untold, steam, shelf = found.parts
    assert (levels.doc, levels.given_as) == ("Levels of difficulty.", "--KEY or task.KEY")
    assert made.options == levels.options == (Option("level", "int", "3", "How hard."),)
    assert [option.key for option in checked.options][:5] == ["id", "prompt", "answer", "slice", "tools"]
    assert checked.given_as == "rewards: [{name: checked, KEY: …}]"
    assert (untold.options, untold.given_as, untold.problem) == ((), "", "")
    assert steam.problem == "ModuleNotFoundError: No module named 'a_package_that_is_not_there'"
    assert (shelf.doc, shelf.given_as) == ("Where books stand.", "plugins.shelf.KEY")
    assert shelf.options == (Option("boards", "int", "4", "Above each other."),)


def test_every_part_of_the_core_says_what_it_is() -> None:
    parts = describe(Registry([]).load("builtin")).parts
    assert {part.kind for part in parts} >= {"task", "env", "chat_format", "reward_scorer", "engine"}
    assert [part.name for part in parts if not part.doc and not part.problem] == []
