"""Adapts tools written for Qwen-Agent (tested with 0.0.34), which is imported when the first such tool is made."""

from __future__ import annotations

import inspect
import json
import logging
import signal
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import ModuleType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from jsonschema import ValidationError

from rlfactory_core import ToolContext
from rlfactory_core.cache import digest
from rlfactory_core.errors import MissingExtraError, ToolArgumentsError, ToolError, UsageError, nearest
from rlfactory_core.protocols import Tool, ToolSource
from rlfactory_core.tools import mended, with_json_types
from rlfactory_core.types import Message, ToolSpec
from rlfactory_core.utils.text import to_text
from rlfactory_core.utils.threads import BlockingPool

_log = logging.getLogger(__name__)

_INTERPRETER = "code_interpreter"  # the only tool of Qwen-Agent's own that keeps state in its instance; needs Docker


def qwen_tools(function_list: Sequence[Any]) -> list[Tool | ToolSource]:
    """The tools of a ``function_list`` of Qwen-Agent, for a task's ``tools``.

    Args:
        function_list: items for `qwen_tool`, and ``{"mcpServers": …}`` for `McpSource`.

    Raises:
        UsageError, MissingExtraError: as `qwen_tool`.
    """
    from rlfactory_mcp.source import McpSource

    def made(item: Any) -> Tool | ToolSource:
        return McpSource(dict(item)) if isinstance(item, Mapping) and "mcpServers" in item else qwen_tool(item)

    return list(map(made, function_list))


def qwen_tool(
    item: Any,
    *,
    per_trajectory: bool | None = None,
    idempotent: bool = False,
    stateful: bool = True,
    version: str | None = None,
    deadline_s: float | None = None,
    **config: Any,
) -> QwenTool:
    """A tool of Qwen-Agent: ``qwen_tool("storage")``, ``qwen_tool(MyTool, index="…")``, ``qwen_tool(MyTool())``.

    Args:
        item: a ``BaseTool``, a class of them, a registered name, or ``{"name": "code_interpreter", …}`` with its
            configuration.
        per_trajectory: for tools that keep state in their instance. Each trajectory gets an instance of its own, made
            at its first call; when the trajectory is over, the instance's ``close()`` or ``__del__`` is called, if
            there is one. Otherwise one instance answers all calls, several at once, each in a thread of its own. By
            default true only for Qwen-Agent's code interpreter.
        idempotent: a second run does no harm, so the call may be retried after an infra fault.
        stateful: results depend on more than the arguments, so they are never cached.
        version: a part of the cache's key; by default the class's source and the configuration.
        deadline_s: seconds for one call; an override in the configuration takes precedence.
        config: the Qwen-Agent tool's own ``cfg``.

    Raises:
        MissingExtraError: Qwen-Agent, or a package that it needs, is not installed.
        UsageError: there is no such tool, or it cannot be made here.
    """
    qwen = _import()
    if isinstance(item, qwen.BaseTool):
        if per_trajectory or config:
            raise UsageError(
                f"{item.name} is made already, so it takes no per_trajectory and no configuration; give its class."
            )
        return QwenTool(item, None, idempotent, stateful, version, deadline_s)
    cls, cfg = _lookup(item, qwen)
    make = partial(_make, cls, {**cfg, **config})
    own = cls.name == _INTERPRETER if per_trajectory is None else per_trajectory
    return QwenTool(make(), make if own else None, idempotent, stateful, version, deadline_s)


class QwenTool:
    """A `protocols.Tool` around a Qwen-Agent ``BaseTool``; made by `qwen_tool`.

    Args:
        instance: answers the calls and describes the tool.
        make: makes another instance for each trajectory; None: all trajectories share one.
    """

    def __init__(
        self,
        instance: Any,
        make: Callable[[], Any] | None,
        idempotent: bool,
        stateful: bool,
        version: str | None,
        deadline_s: float | None,
    ) -> None:
        name = str(instance.name)
        self.spec = ToolSpec(name, instance.description, _schema(instance.parameters, name))
        self.idempotent = idempotent
        self.stateful = stateful or make is not None
        self.version = _version(instance) if version is None else version
        self.deadline_s = deadline_s
        self._shared, self._make = instance, make
        self._takes_text, self._takes_messages = _reads(type(instance).call)
        self._pool = BlockingPool(name)

    def __repr__(self) -> str:
        return f"<tool {self.spec.name}>"

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        """Run the tool; see `protocols.Tool`."""
        instance = self._shared if self._make is None else await context.once(self, partial(self._own, context))
        params = json.dumps(dict(arguments), ensure_ascii=False) if self._takes_text else dict(arguments)
        extra = {"messages": _messages(context.sample.messages)} if self._takes_messages else {}
        try:
            if inspect.iscoroutinefunction(instance.call):
                return _text(await instance.call(params, **extra))
            value = await self._pool.run(partial(instance.call, params, **extra))
            return _text(await value if inspect.isawaitable(value) else value)
        except _refusals() as error:
            raise _translated(error) from error

    async def close(self) -> None:
        """End the idle threads. A later call starts new ones."""
        self._pool.close()

    async def _own(self, context: ToolContext) -> Any:
        """The trajectory's instance."""
        assert self._make is not None
        instance = await self._pool.run(self._make)
        # Garbage collection would come late, and in the event loop: the code interpreter's waits there for Docker.
        close = getattr(instance, "close", None) or getattr(instance, "__del__", None)
        if callable(close):

            async def release() -> None:
                closing = await self._pool.run(close)
                if inspect.isawaitable(closing):
                    await closing

            context.on_end(release)
        return instance


def _import() -> ModuleType:
    """``qwen_agent.tools.base``, imported without its handler of Ctrl-C, which would replace the run's own."""
    before = signal.getsignal(signal.SIGINT)
    try:
        from qwen_agent.tools import base
    except ImportError as error:
        raise MissingExtraError(
            f"Qwen-Agent's tools need qwen-agent, which cannot be imported here ({error}): "
            "python -m pip install 'rlfactory-core[qwen-agent]'"
        ) from error
    if before is not None and signal.getsignal(signal.SIGINT) is not before:
        signal.signal(signal.SIGINT, before)
    module: ModuleType = base
    return module


def _lookup(item: Any, qwen: ModuleType) -> tuple[type[Any], dict[str, Any]]:
    """The class and the configuration that ``item`` stands for."""
    if isinstance(item, type) and issubclass(item, qwen.BaseTool):
        return item, {}
    cfg = dict(item) if isinstance(item, Mapping) else {}
    name = cfg.get("name", item)
    if not isinstance(name, str):
        raise UsageError(
            f"{item!r} is not a tool of Qwen-Agent; expected a BaseTool, its class, a registered name, or "
            '{"name": …} with its configuration.'
        )
    if name not in qwen.TOOL_REGISTRY:
        raise UsageError(
            f"Qwen-Agent has no tool registered as '{name}'. {nearest(name, qwen.TOOL_REGISTRY)} "
            "Import the module that registers it first."
        )
    return qwen.TOOL_REGISTRY[name], cfg


def _make(cls: type[Any], cfg: Mapping[str, Any]) -> Any:
    try:
        return cls(dict(cfg)) if cfg else cls()
    except Exception as error:  # the boundary to the tool's own code
        name = cls.name or cls.__name__
        hint = " rlfactory_interpreter.code_interpreter() needs no Docker." if name == _INTERPRETER else ""
        raise UsageError(
            f"Qwen-Agent's tool '{name}' cannot be made here: {type(error).__name__}: {error}.{hint}"
        ) from error


def _schema(parameters: Any, name: str) -> dict[str, Any]:
    """A JSON schema as it is, or made from the older list of ``{"name", "type", "description", "required"}``."""
    if isinstance(parameters, Mapping):
        try:
            found = mended(parameters)
        except UsageError as error:
            raise UsageError(f"Qwen-Agent's tool '{name}': its parameters are no schema: {error}") from error
        for change in found.changes:
            _log.warning("Qwen-Agent's tool %s: parameters.%s", name, change)
        return dict(found.schema)
    properties: dict[str, Any] = {}
    required: list[str] = []
    for row in parameters:
        if not isinstance(row, Mapping) or "name" not in row:
            raise UsageError(f"Qwen-Agent's tool '{name}': its parameters hold {row!r}; expected dicts with a name.")
        schema = {key: value for key, value in row.items() if key not in ("name", "required")}
        properties[row["name"]] = with_json_types(schema)
        if row.get("required"):
            required.append(row["name"])
    return {"type": "object", "properties": properties, "required": required}


def _version(instance: Any) -> str:
    cls = type(instance)
    try:
        source = inspect.getsource(cls)
    except (OSError, TypeError):  # typed at a prompt
        source = ""
    return digest([f"{cls.__module__}.{cls.__qualname__}", source, repr(getattr(instance, "cfg", None))])


def _reads(call: Callable[..., Any]) -> tuple[bool, bool]:
    """Whether ``call`` takes its arguments as JSON text, and whether it takes the conversation's ``messages``.

    Qwen-Agent's own agents always pass text and messages. A tool gets a dict only if its hint allows nothing else.
    """
    parameters = inspect.signature(call).parameters
    takes_messages = "messages" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    first = next((name for name in parameters if name != "self"), "")
    try:
        hint = get_type_hints(call).get(first, str)
    except (NameError, TypeError):
        return True, takes_messages
    choices = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    kinds = {get_origin(choice) or choice for choice in choices}
    return str in kinds or not kinds & {dict, Mapping}, takes_messages


def _messages(messages: Sequence[Message]) -> list[Any]:
    """The opening messages of the conversation, as Qwen-Agent's type."""
    from qwen_agent.llm.schema import FUNCTION
    from qwen_agent.llm.schema import Message as QwenMessage

    return [QwenMessage(FUNCTION if item.role == "tool" else item.role, item.content) for item in messages]


def _text(value: Any) -> str:
    """A text as it is, content items as their texts (``[image]`` for others), any other value as JSON."""
    from qwen_agent.llm.schema import ContentItem

    if isinstance(value, list) and value and all(isinstance(item, ContentItem) for item in value):
        return "\n".join(item.text if item.text is not None else f"[{item.type}]" for item in value)
    return to_text(value)


def _refusals() -> tuple[type[Exception], ...]:
    """The exceptions with which Qwen-Agent's tools refuse a call."""
    from qwen_agent.tools.base import ToolServiceError
    from qwen_agent.tools.simple_doc_parser import DocParserError
    from qwen_agent.tools.storage import KeyNotExistsError

    return ToolServiceError, DocParserError, KeyNotExistsError, ValidationError


def _translated(error: Any) -> Exception:
    """A refusal as one of our errors.

    A service error around another exception is replaced by that exception, whose class tells the cause of the fault.
    """
    if isinstance(error, ValidationError):  # by ``_verify_json_format_args``
        return ToolArgumentsError(f"wrong arguments: {error.message}")
    if isinstance(error, ValueError):
        return ToolError(str(error))
    inner = error.exception or error.__cause__ or error.__context__
    return inner if isinstance(inner, Exception) else ToolError(error.message or f"error code {error.code}")
