"""Python functions as tools: what the model is told, what the function gets, what pickles."""

from __future__ import annotations

import asyncio
import datetime as dt
import enum
import itertools
import pickle
import signal
import threading
from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field
from tool_calls import invoke, write

from rlfactory_core.context import ToolContext
from rlfactory_core.errors import ToolArgumentsError, UsageError
from rlfactory_core.protocols import Tool
from rlfactory_core.tools import FunctionTool, tool
from rlfactory_core.tools.schema import undescribed
from rlfactory_core.types import FaultKind, Sample

CONTEXT = ToolContext("t", Sample("s", "?"))


class Unit(enum.Enum):
    CELSIUS = "c"
    KELVIN = "k"


class Place(BaseModel):
    city: str
    days: list[dt.date] = []


@tool
def google(place: Place, unit: Unit = Unit.CELSIUS, limit: Annotated[int, Field(ge=1)] | None = None) -> str:
    """Forecast the weather.

    Only for the next days.

    Args:
        place: where, and when
            exactly.
        unit (Unit): of the temperature.
    """
    return f"{place.city} {[day.day for day in place.days]} {unit.name} {limit}"


@tool(name="find", idempotent=True)
async def numpy_style(query: str, k=3, *, context: ToolContext) -> dict[str, Any]:  # type: ignore[no-untyped-def]
    """Find documents.

    Parameters
    ----------
    query : str
        What to look for.
    k : int
        How many.
    """
    return {"query": query, "k": k, "who": context.trajectory_id}


class Library:
    def __init__(self, name: str) -> None:
        self.name = name

    def search(self, query: str) -> str:
        """Search the library."""
        return f"{self.name}: {query}"


def call(made: Tool, **arguments: Any) -> str:
    async def run() -> str:
        try:
            return await made.call(arguments, CONTEXT)
        finally:
            await made.close()

    return asyncio.run(run())


def test_schema_from_hints_and_google_docstring() -> None:
    assert google.spec.name == "google"
    assert google.spec.description == "Forecast the weather.\n\nOnly for the next days."
    parameters = google.spec.parameters
    assert parameters["required"] == ["place"]
    assert parameters["additionalProperties"] is False
    assert parameters["properties"]["place"]["description"] == "where, and when\nexactly."
    assert parameters["properties"]["unit"] == {
        "$ref": "#/$defs/Unit",
        "default": "c",
        "description": "of the temperature.",
    }
    assert parameters["$defs"]["Unit"] == {"enum": ["c", "k"], "type": "string"}
    assert {"type": "integer", "minimum": 1} in parameters["properties"]["limit"]["anyOf"]


def test_schema_from_numpy_docstring_hides_the_context() -> None:
    assert numpy_style.spec.name == "find"
    assert numpy_style.spec.parameters["properties"] == {
        "query": {"description": "What to look for.", "type": "string"},
        "k": {"default": 3, "description": "How many."},
    }
    assert numpy_style.idempotent
    assert numpy_style.stateful  # it takes the context


def test_a_function_without_parameters_or_docstring() -> None:
    @tool
    def ping() -> None:
        pass

    assert ping.spec.description == ""
    assert ping.spec.parameters == {"type": "object", "properties": {}, "additionalProperties": False}
    assert call(ping) == "(no output)"


def test_names_that_pydantic_reserves_are_fine() -> None:
    @tool
    def odd(schema: str, copy: int, model_config: str, _hidden: str = "x") -> str:
        return f"{schema} {copy} {model_config} {_hidden}"

    assert call(odd, schema="a", copy=1, model_config="b") == "a 1 b x"


def test_arguments_become_what_the_hints_promise() -> None:
    assert call(google, place={"city": "Rome", "days": ["2026-11-21"]}, unit="k") == "Rome [21] KELVIN None"
    assert call(google, place={"city": "Rome"}) == "Rome [] CELSIUS None"
    assert call(numpy_style, query="q") == '{"query":"q","k":3,"who":"t"}'


def test_a_value_that_only_the_hints_refuse_says_where() -> None:
    with pytest.raises(ToolArgumentsError, match=r"place\.days\.0: .*date"):
        call(google, place={"city": "Rome", "days": ["2026-13-41"]})


def test_it_stays_a_function() -> None:
    assert google(Place(city="Rome")) == "Rome [] CELSIUS None"
    assert str(google.__doc__).startswith("Forecast")
    assert isinstance(google, Tool)


def test_bound_methods_and_other_names() -> None:
    made = tool(Library("Alexandria").search, name="lookup", description="Look it up.")
    assert (made.spec.name, made.spec.description) == ("lookup", "Look it up.")
    assert call(made, query="x") == "Alexandria: x"


def test_a_decorated_function_pickles() -> None:
    assert pickle.loads(pickle.dumps(google)) is google


def test_blocking_functions_leave_the_event_loop_free() -> None:
    release = threading.Event()

    @tool
    def wait() -> str:
        release.wait(60)
        return threading.current_thread().name

    async def run() -> str:
        waiting = asyncio.ensure_future(wait.call({}, CONTEXT))
        await asyncio.sleep(0)
        release.set()  # only a free loop gets here
        try:
            return await waiting
        finally:
            await wait.close()

    assert asyncio.run(run()) == "tool-wait"


def test_a_plain_wrapper_around_an_async_function_is_awaited() -> None:
    @tool
    def wrapped(query: str) -> Any:
        return numpy_style(query, context=CONTEXT)

    assert call(wrapped, query="q") == '{"query":"q","k":3,"who":"t"}'


def test_threads_are_used_again_and_end_with_close() -> None:
    @tool
    def ident() -> int:
        return threading.get_ident()

    async def run() -> tuple[set[str], int]:
        seen = {await ident.call({}, CONTEXT) for _ in range(200)}
        alive = sum(thread.name == "tool-ident" for thread in threading.enumerate())
        await ident.close()
        return seen, alive

    seen, alive = asyncio.run(run())
    assert len(seen) == alive == 1
    for thread in threading.enumerate():
        if thread.name == "tool-ident":
            thread.join(5)
            assert not thread.is_alive()


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (lambda *args: None, "no name that the model could use"),
        (lambda **kwargs: None, "no name that the model could use"),
        (Library.search, "not bound to its object"),
        (Library, "a tool is made from a function"),
        (len, "a tool is made from a function"),
    ],
)
def test_what_cannot_be_a_tool(bad: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        tool(bad)


def test_types_that_json_cannot_say() -> None:
    def takes_lock(lock: threading.Event) -> None: ...

    with pytest.raises(UsageError, match="cannot be written as JSON"):
        tool(takes_lock)


def test_hints_that_are_unknown_at_run_time() -> None:
    def takes(path: NowhereKnown) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(UsageError, match=r"'NowhereKnown'.*TYPE_CHECKING"):
        tool(takes)


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(TypeError, match=r"no option 'idempotnt'\. Did you mean 'idempotent'"):
        tool(google._fn, idempotnt=True)  # type: ignore[call-overload]


def test_a_function_without_a_result_says_so() -> None:
    @tool
    async def nothing() -> None:
        """Do something."""

    assert invoke(write("nothing", {}), nothing).content == "(no output)"


@pytest.mark.parametrize("name", ["my tool", "", "a" * 65, "naïve!"])
def test_a_name_that_models_cannot_call_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="expected letters, digits"):
        tool(lambda: "x", name=name)


def test_what_the_model_is_not_told_is_said() -> None:
    @tool
    async def add(a, b: int) -> int:  # type: ignore[no-untyped-def]
        return a + b

    assert undescribed(add.spec) == ["what it does: write a docstring", "the type of a: annotate it"]


def test_a_signal_in_a_thread_is_explained() -> None:
    @tool
    def alarm() -> str:
        """Set an alarm."""
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        return "set"

    assert "write the tool as an async function" in invoke(write("alarm", {}), alarm).reason


def test_a_generator_is_refused_because_it_may_have_no_end() -> None:
    @tool
    def count() -> Iterator[int]:
        """Count for ever."""
        yield from itertools.count()

    result = invoke(write("count", {}), count)
    assert result.fault is FaultKind.TOOL
    assert "it returned a generator; expected text or data" in result.reason


def test_a_result_that_takes_long_to_write_ends_at_the_deadline() -> None:
    go_on = threading.Event()

    class Slow:
        def __str__(self) -> str:
            go_on.wait(60)
            return "slow"

    @tool
    async def look() -> list[Any]:
        """Look."""
        return [Slow()]

    result = invoke(write("look", {}), look, deadline_s=0.05, retries=0)
    go_on.set()
    assert "did not answer in time" in result.content


class Text(str):
    """A text whose methods are of its own."""

    __slots__ = ()

    def __str__(self) -> str:
        raise AssertionError

    encode = isprintable = translate = __str__


@pytest.mark.parametrize("blocking", [False, True])
def test_a_result_is_text_without_the_methods_of_its_class(blocking: bool) -> None:
    def blocks() -> str:
        return Text("found")

    async def waits() -> str:
        return Text("found")

    result = invoke(write("find", {}), FunctionTool(blocks if blocking else waits, "find", description="Find."))
    assert (result.content, type(result.content)) == ("found", str)
