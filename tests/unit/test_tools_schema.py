"""From a function's hints and docstring to what the model is told, and from its JSON to what the hints promise."""

from __future__ import annotations

import asyncio
import enum
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NotRequired, Optional, TypeVar

import pytest
from pydantic import BaseModel, Field
from tool_calls import invoke, write
from typing_extensions import TypedDict

from rlfactory_core.context import ToolContext
from rlfactory_core.errors import UsageError
from rlfactory_core.tools import FunctionTool, tool
from rlfactory_core.types import FaultKind


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Point(BaseModel):
    """A place on the map."""

    x: float
    y: float = Field(0.0, description="northwards")


@dataclass
class Route:
    points: list[Point]
    name: str = "unnamed"
    tags: dict[str, list[int]] = field(default_factory=dict)


class Options(TypedDict):
    depth: int
    note: NotRequired[str]


def answer(made: FunctionTool[..., Any], **arguments: Any) -> str:
    """Through the manager, so that what the schema refuses is refused."""
    result = invoke(write(made.spec.name, arguments), made)
    return result.content if result.fault is None else f"{result.fault.value}: {result.content}"


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize(
    ("hint", "default", "value", "seen", "schema"),
    [
        (Literal["asc", "desc"], ..., "asc", "'asc'", {"enum": ["asc", "desc"], "type": "string"}),
        (Literal[1, 2], ..., 2, "2", {"enum": [1, 2], "type": "integer"}),
        (Level, ..., 2, "<Level.HIGH: 2>", None),
        (Level, Level.LOW, ..., "<Level.LOW: 1>", None),
        (Optional[int], ..., None, "None", {"anyOf": [{"type": "integer"}, {"type": "null"}]}),  # noqa: UP045
        (Optional[int], None, ..., "None", {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}),  # noqa: UP045
        (int, None, 3, "3", {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}),
        ("int | str", ..., "a", "'a'", {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        (dict[str, list[int]], ..., {"a": [1]}, "{'a': [1]}", None),
        (tuple[int, str], ..., [1, "a"], "(1, 'a')", None),
        (set[int], ..., [1], "{1}", None),
        (Any, ..., {"a": [None]}, "{'a': [None]}", {}),
        (Annotated[int, Field(ge=1, description="how many")], 3, 1, "1", None),
        (Point, ..., {"x": 1}, "Point(x=1.0, y=0.0)", None),
        (Point, Point(x=1), ..., "Point(x=1.0, y=0.0)", None),
        (list[Point], [], ..., "[]", None),
        (
            Route,
            ...,
            {"points": [{"x": 1, "y": 2}], "tags": {"a": [1]}},
            "Route(points=[Point(x=1.0, y=2.0)], name='unnamed', tags={'a': [1]})",
            None,
        ),
        (Options, ..., {"depth": 1}, "{'depth': 1}", None),
    ],
)
def test_types(hint: Any, default: Any, value: Any, seen: str, schema: Any, asynchronous: bool) -> None:
    def plain(item):  # type: ignore[no-untyped-def]
        return repr(item)

    async def waiting(item):  # type: ignore[no-untyped-def]
        return repr(item)

    fn: Callable[..., Any] = waiting if asynchronous else plain
    fn.__annotations__ = {"item": hint}
    fn.__defaults__ = None if default is ... else (default,)
    made = tool(fn, name="f")
    assert made.spec.parameters["required"] == ["item"] if default is ... else "required" not in made.spec.parameters
    if schema is not None:
        assert made.spec.parameters["properties"]["item"] == schema
    assert answer(made, **({} if value is ... else {"item": value})) == seen


def test_what_the_types_exclude_is_the_models_mistake() -> None:
    @tool
    def plan(route: Route, order: Literal["asc", "desc"] = "asc", level: Level = Level.LOW) -> str:
        return "ok"

    for wrong in ({"route": {}}, {"route": {"points": [{"y": 1}]}}, {"route": {"points": []}, "order": "up"}):
        result = invoke(write("plan", wrong), plan)
        assert (result.fault, result.attempts) == (FaultKind.POLICY, 0)
    assert '\'order\' must be one of ["asc", "desc"]' in answer(plan, route={"points": []}, order="up")
    assert answer(plan, route={"points": []}, level=2) == "ok"


def test_descriptions_from_the_docstring_the_hints_and_the_models() -> None:
    @tool
    def find(where: Point, k: Annotated[int, Field(description="how many")] = 3, deep: bool = False) -> str:
        """Find places.

        Args:
            where: around here.
            deep: also below ground,
                where there is any.
        """
        return ""

    properties = find.spec.parameters["properties"]
    assert properties["k"]["description"] == "how many"
    assert properties["where"]["description"] == "around here."
    assert properties["deep"]["description"] == "also below ground,\nwhere there is any."
    assert find.spec.parameters["$defs"]["Point"]["description"] == "A place on the map."
    assert find.spec.parameters["$defs"]["Point"]["properties"]["y"]["description"] == "northwards"
    assert "title" not in str(find.spec.parameters)


def test_numpy_docstrings() -> None:
    @tool
    def find(query: str, k: int = 3) -> str:
        """Find documents.

        Slowly, but surely.

        Parameters
        ----------
        query : str
            What to look for,
            in words.
        k : int, optional
            How many.

        Returns
        -------
        str
            The documents.
        """
        return query

    assert find.spec.description == "Find documents.\n\nSlowly, but surely."
    properties = find.spec.parameters["properties"]
    assert [properties[name]["description"] for name in ("query", "k")] == ["What to look for,\nin words.", "How many."]


CONTEXTS = """
from typing import Annotated, Optional
from rlfactory_core.context import ToolContext
def plain(a: int, context: ToolContext): return f"{a} {context.trajectory_id}"
def first(ctx: ToolContext, a: int): return f"{a} {ctx.trajectory_id}"
def keyword(a: int, *, context: ToolContext = None): return f"{a} {context.trajectory_id}"
def optional(a: int, context: Optional[ToolContext] = None): return f"{a} {context.trajectory_id}"
def union(a: int, context: "ToolContext | None" = None): return f"{a} {context.trajectory_id}"
def annotated(a: int, context: Annotated[ToolContext, "who calls"]): return f"{a} {context.trajectory_id}"
"""


@pytest.mark.parametrize("future", ["", "from __future__ import annotations\n"])
@pytest.mark.parametrize("name", ["plain", "first", "keyword", "optional", "union", "annotated"])
def test_the_context_is_given_and_never_shown(name: str, future: str) -> None:
    module: dict[str, Any] = {"__name__": "made_here"}
    exec(future + CONTEXTS, module)
    made = tool(module[name])
    assert list(made.spec.parameters["properties"]) == ["a"]
    assert "ontext" not in str(made.spec)
    assert made.stateful
    assert answer(made, a=1) == "1 t"
    assert answer(made, a=1, context="mine").startswith("policy: ")


R = TypeVar("R")


def noted(fn: Callable[..., R]) -> Callable[..., R]:
    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> R:
        return fn(*args, **kwargs)

    return wrapper


class Library:
    def __init__(self, name: str) -> None:
        self.name = name

    @noted
    def search(self, query: str) -> str:
        """Search it."""
        return f"{self.name}: {query}"

    async def search_slowly(self, query: str) -> str:
        await asyncio.sleep(0)
        return f"{self.name}: {query}"

    @classmethod
    def by_class(cls, query: str) -> str:
        return f"{cls.__name__}: {query}"

    @staticmethod
    def by_itself(query: str) -> str:
        return query

    def __call__(self, query: str) -> str:
        return f"called {query}"


@noted
async def decorated(query: str, context: ToolContext) -> str:
    """Decorated with a plain wrapper."""
    return f"{context.trajectory_id} {query}"


@functools.lru_cache
def remembered(query: str) -> str:
    """Remembered."""
    return query


@pytest.mark.parametrize(
    ("fn", "seen"),
    [
        (Library("a").search, "a: x"),
        (Library("a").search_slowly, "a: x"),
        (Library.by_class, "Library: x"),
        (Library.by_itself, "x"),
        (Library("a").__call__, "called x"),
        (decorated, "t x"),
        (remembered, "x"),
    ],
)
def test_methods_and_decorated_functions(fn: Callable[..., Any], seen: str) -> None:
    made = tool(fn, name="f")
    assert list(made.spec.parameters["properties"]) == ["query"]
    assert answer(made, query="x") == seen


@pytest.mark.parametrize("bad", [functools.partial(Library("a").search, query="x"), Library("a"), tool(decorated), 3])
def test_other_callables_are_refused_with_what_to_do(bad: Any) -> None:
    with pytest.raises(UsageError, match=r"made from a function or a bound method\. Write a function that calls it"):
        tool(bad, name="f")


def test_a_field_as_a_default_is_refused_with_what_to_write() -> None:
    def find(k: int = Field(3, ge=1)) -> str:
        return str(k)

    with pytest.raises(UsageError, match=r"k: Annotated\[int, Field"):
        tool(find)


def test_a_default_that_json_cannot_say_stays_the_functions_own() -> None:
    nothing = object()

    def find(a: int = 1, b: Any = nothing) -> bool:
        return b is nothing

    made = tool(find)
    assert made.spec.parameters["properties"]["b"] == {}
    assert answer(made) == "true"
