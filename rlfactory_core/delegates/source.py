"""What the tools here share: they are ready once an endpoint has answered, and let go of at the run's end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from rlfactory_core.clients.openai import OpenAIClient
from rlfactory_core.errors import BackendError, UsageError
from rlfactory_core.protocols import Tool
from rlfactory_core.tool_context import ToolContext
from rlfactory_core.types import ToolSpec

_CONNECTIONS = 1024  # at most; how many calls run at once, and how long, is the tool manager's affair


class DelegateSource:
    """A `protocols.ToolSource` of one tool.

    Args:
        name: the tool's.
        start: makes the tool, given the group; what is to be closed with it goes onto the stack.
    """

    def __init__(self, name: str, start: Callable[[AsyncExitStack, str], Awaitable[Tool]]) -> None:
        self._name, self._start = name, start
        self._opened = AsyncExitStack()

    def __repr__(self) -> str:
        return f"<tool {self._name}>"

    async def open(self, taken: Collection[str], group: str = "") -> Sequence[Tool]:
        """See `protocols.ToolSource`; the tool manager refuses a name that is ``taken``."""
        return (await self._start(self._opened, group),)

    async def close(self) -> None:
        await self._opened.aclose()


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a tool's model is served."""

    name: str  # the tool's, for error messages
    base_url: str
    model: str
    api_key: str | None = field(default=None, repr=False)

    async def connect(self, opened: AsyncExitStack, tools: Sequence[ToolSpec] = ()) -> OpenAIClient:
        """An open client, which has seen the model answer with these ``tools``.

        Raises:
            BackendError: nothing answers, the key is refused, or the model cannot be used with tools.
            UsageError: ``base_url`` is not an address.
        """
        try:
            client = OpenAIClient(self.base_url, self.model, api_key=self.api_key, concurrency=_CONNECTIONS)
            await client.open(tools)
        except (BackendError, UsageError) as error:
            raise type(error)(f"tool '{self.name}': {error}") from error
        opened.push_async_callback(client.close)
        return client


def name_call(context: ToolContext, tool: str) -> str:
    """A name for this call, unique in the run where the trajectory's is: ``<trajectory>/<tool>/<number>``."""
    key = f"delegates.calls.{tool}"
    number = context.state.get(key, 0)
    context.state[key] = number + 1
    return f"{context.trajectory_id}/{tool}/{number}"
