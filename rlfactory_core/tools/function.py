"""Makes tools of Python functions: the ``@tool`` decorator, `FunctionTool`, and the hash that is a tool's version."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypedDict, TypeVar, Unpack, overload

from rlfactory_core.cache import digest
from rlfactory_core.context import ToolContext
from rlfactory_core.errors import nearest
from rlfactory_core.images import content_text
from rlfactory_core.tools.schema import read_signature
from rlfactory_core.utils.threads import BlockingPool

NO_OUTPUT = "(no output)"
"""What the model reads of a function that returns None."""
P = ParamSpec("P")
R = TypeVar("R")


class ToolOptions(TypedDict, total=False):
    """Options of a tool; None has the same meaning as no value."""

    description: str | None
    """For the model; by default the function's docstring."""
    idempotent: bool
    """A second run does no harm, so the call may be retried after an infra fault."""
    stateful: bool | None
    """Results depend on more than the arguments, so they are never cached. By default true for functions that take a
    `ToolContext`."""
    version: str | None
    """A part of the cache's key; by default a hash of the function's name and file. Give one if results depend on
    something else that changes, such as an index. Methods and functions within functions have no version by default,
    and results of a tool without a version are not kept on disk."""
    deadline_s: float | None
    """Seconds for one call; an override in the configuration takes precedence."""


class FunctionTool(Generic[P, R]):
    """A function that the model can call, and that Python code can still call as before.

    The JSON schema comes from the signature, the type hints and the docstring. A parameter annotated `ToolContext` is
    injected and hidden from the model. An ``async`` function runs on the event loop, any other function in a thread
    (see `BlockingPool`), where it cannot set signals. Results that are not strings go to the model as JSON.

    Args:
        fn: a function or a bound method.
        name: for the model; the function's own name by default.
        options: see `ToolOptions`.

    Raises:
        UsageError: the signature cannot be filled from a JSON object of named arguments.
        TypeError: an unknown option.
    """

    def __init__(self, fn: Callable[P, R], name: str | None = None, **options: Unpack[ToolOptions]) -> None:
        known = ToolOptions.__annotations__
        for option in options.keys() - known.keys():
            raise TypeError(f"A tool has no option '{option}'. {nearest(option, known)}")
        self._fn = fn
        self._signature = read_signature(fn, name, options.get("description"))
        self._is_async = inspect.iscoroutinefunction(fn)
        self.spec = self._signature.spec
        self._pool = BlockingPool(self.spec.name)
        self.idempotent = options.get("idempotent", False)
        stateful, version = options.get("stateful"), options.get("version")
        self.stateful = self._signature.context_parameter is not None if stateful is None else stateful
        self.version = code_version(fn) if version is None else version
        self.deadline_s = options.get("deadline_s")
        functools.update_wrapper(self, fn, updated=())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._fn(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tool {self.spec.name}>"

    def __reduce__(self) -> str:
        """A decorated function pickles as its own name, under which this tool is found."""
        return self._fn.__qualname__

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        """Run the function; see `protocols.Tool`."""
        values = self._signature.convert(arguments)
        if self._signature.context_parameter:
            values[self._signature.context_parameter] = context
        fn: Callable[..., Any] = self._fn
        if self._is_async:
            try:
                return await self._in_text(await fn(**values))
            except (Exception, asyncio.CancelledError, KeyboardInterrupt):
                raise
            except BaseException as error:  # SystemExit and others would end the event loop and not only the call
                if isinstance(error, GeneratorExit) and not _is_in_task():  # a call that was left behind is dropped
                    raise
                raise RuntimeError(f"the function raised {error!r}") from error
        value = await self._pool.run(functools.partial(fn, **values))
        return await self._in_text(await value if inspect.isawaitable(value) else value)

    async def _in_text(self, value: object) -> str:
        """As JSON where it is not text; in a thread, since large results take long."""
        plain = value is None or isinstance(value, (str, int, float))
        return _text(value) if plain else await self._pool.run(functools.partial(_text, value))

    async def close(self) -> None:
        """End the idle threads. A later call starts new ones."""
        self._pool.close()


def _is_in_task() -> bool:
    try:
        return asyncio.current_task() is not None
    except RuntimeError:
        return False


def _text(value: object) -> str:
    if isinstance(value, (Iterator, AsyncIterator)):  # it may have no end
        raise TypeError(f"it returned a {type(value).__name__}; expected text or data, such as a list")
    return NO_OUTPUT if value is None else content_text(value)


@overload
def tool(fn: Callable[P, R], *, name: str | None = None, **options: Unpack[ToolOptions]) -> FunctionTool[P, R]: ...


@overload
def tool(
    *, name: str | None = None, **options: Unpack[ToolOptions]
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...


def tool(fn: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Make a tool of a function: ``@tool``, ``@tool(idempotent=True)`` or ``tool(self.search, name="search")``.

    The options are ``name`` and those of `ToolOptions`.
    """
    if fn is None:
        return functools.partial(FunctionTool, **options)
    return FunctionTool(fn, **options)


def code_version(fn: Callable[..., Any]) -> str:
    """A hash of the function's name and file, and of the files of functions that it wraps.

    The whole file counts, because helpers of the function are usually edited there: a changed version that was not
    necessary costs less than a stale answer. Imports do not count. The version is empty where a file does not decide
    the result: for a method, for a function that another one makes, and for one without a file.
    """
    if inspect.ismethod(fn) or "<locals>" in fn.__qualname__:
        return ""
    functions: list[Any] = [fn]
    while hasattr(functions[-1], "__wrapped__"):
        functions.append(functions[-1].__wrapped__)
    try:
        files = [Path(each.__code__.co_filename).read_bytes() for each in functions if inspect.isfunction(each)]
    except OSError:  # typed in, or made by exec
        return ""
    return digest([f"{fn.__module__}.{fn.__qualname__}", *files])
