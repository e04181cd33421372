"""Python functions as tools: the ``@tool`` decorator and the `FunctionTool` that it makes."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Generic, ParamSpec, TypeVar, overload

from rlfactory_core.tool_context import ToolContext
from rlfactory_core.tools.pool import BlockingPool
from rlfactory_core.tools.results import to_text
from rlfactory_core.tools.schema import read_signature
from rlfactory_core.tools.version import code_version

P = ParamSpec("P")
R = TypeVar("R")


class FunctionTool(Generic[P, R]):
    """A function that the model can call, and that can still be called as the function it was.

    The JSON schema comes from the signature, the type hints and the docstring. A parameter annotated `ToolContext` is
    injected and hidden from the model. An ``async`` function runs on the event loop; any other one in a thread, one for
    each call at once (see `BlockingPool`). Results that are not strings go to the model as JSON.

    Args:
        fn: a function or a bound method.
        name: what the model calls it; the function's own name by default.
        description: instead of the docstring's.
        idempotent: a second run does no harm, so it may be retried after an infra fault.
        stateful: results depend on more than the arguments, so they are never cached. By default true of functions
            that take a `ToolContext`.
        version: a part of the cache's key; by default a hash of the function's code and file. Name one where results
            depend on something else that changes, such as an index. Methods have none of their own, and without one
            nothing is kept on disk.
        deadline_s: seconds for one call, where the configuration gives none for this tool by name.

    Raises:
        UsageError: a signature that no JSON object of named arguments can fill.
    """

    def __init__(
        self,
        fn: Callable[P, R],
        name: str | None = None,
        *,
        description: str | None = None,
        idempotent: bool = False,
        stateful: bool | None = None,
        version: str | None = None,
        deadline_s: float | None = None,
    ) -> None:
        self._fn = fn
        self._rebuild = (fn, name, description, idempotent, stateful, version, deadline_s)
        self._signature = read_signature(fn, name, description)
        self._is_async = inspect.iscoroutinefunction(fn)
        self._pool: BlockingPool | None = None  # made at the first call: threads do not pickle
        self.spec = self._signature.spec
        self.idempotent = idempotent
        self.stateful = self._signature.context_parameter is not None if stateful is None else stateful
        self.version = code_version(fn) if version is None else version
        self.deadline_s = deadline_s
        functools.update_wrapper(self, fn, updated=())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._fn(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tool {self.spec.name}>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        """A decorated function is found under its own name, where this object stands; others are built again."""
        module, path = self._fn.__module__, getattr(self._fn, "__qualname__", "")
        try:
            if attrgetter(path)(sys.modules[module]) is self:
                return path
        except (AttributeError, KeyError):
            pass
        return _rebuild, self._rebuild

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        """Run the function; see `protocols.Tool`."""
        values = self._signature.convert(arguments)
        if self._signature.context_parameter:
            values[self._signature.context_parameter] = context
        fn: Callable[..., Any] = self._fn
        if self._is_async:
            return to_text(await fn(**values))
        if self._pool is None:
            self._pool = BlockingPool(self.spec.name)
        value = await self._pool.run(functools.partial(fn, **values))
        return to_text(await value if inspect.isawaitable(value) else value)  # a wrapper around an async function

    async def close(self) -> None:
        """End the idle threads. A later call starts new ones."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()


def _rebuild(
    fn: Callable[..., Any],
    name: str | None,
    description: str | None,
    idempotent: bool,
    stateful: bool | None,
    version: str | None,
    deadline_s: float | None,
) -> FunctionTool[..., Any]:
    return FunctionTool(
        fn,
        name,
        description=description,
        idempotent=idempotent,
        stateful=stateful,
        version=version,
        deadline_s=deadline_s,
    )


@overload
def tool(
    fn: Callable[P, R],
    *,
    name: str | None = None,
    description: str | None = None,
    idempotent: bool = False,
    stateful: bool | None = None,
    version: str | None = None,
    deadline_s: float | None = None,
) -> FunctionTool[P, R]: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    idempotent: bool = False,
    stateful: bool | None = None,
    version: str | None = None,
    deadline_s: float | None = None,
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...


def tool(fn: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Make a tool of a function: ``@tool``, ``@tool(idempotent=True)`` or ``tool(self.search, name="search")``.

    The options are those of `FunctionTool`.
    """
    if fn is None:
        return functools.partial(FunctionTool, **options)
    return FunctionTool(fn, **options)
