"""``rlfactory tools``: shows a task's or a server's tools as a model sees them, and makes single calls."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rlfactory_core.cli.options import CONFIG, MCP, PLACES, REST, SETTINGS, nested, task_options
from rlfactory_core.cli.output import echo, echo_json
from rlfactory_core.cli.ui.console import make_console
from rlfactory_core.errors import UsageError
from rlfactory_core.reporting.progress import count_text
from rlfactory_core.tools.schema import undescribed
from rlfactory_core.types import Sample, ToolCall, ToolResult, ToolSpec

if TYPE_CHECKING:
    from rlfactory_core.protocols import Tool
    from rlfactory_core.tasks.runtime import TaskRuntime
    from rlfactory_core.tasks.setup import TaskSetup
    from rlfactory_core.tools.settings import ToolsConfig
    from rlfactory_core.tools.sources import NamedSource, ServerState

Found = TypeVar("Found")
Schema = Mapping[str, Any]


def _where(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that say whose tools are meant, which a command passes on to `_task` as they are."""
    plugin = click.option("--plugin", metavar="NAME|FILE.py", help="The task: a plugin's name, or a one-file plugin.")
    return plugin(MCP(CONFIG(command)))


@click.group()
def tools() -> None:
    """See the tools of a task or of MCP servers as the model does, and call one by hand."""


@tools.command("list", context_settings=SETTINGS)
@_where
@click.option("--json", "as_json", is_flag=True, help="The function schemas exactly as the model gets them.")
@click.option(
    "--servers",
    is_flag=True,
    help="Say how each MCP server starts, and list the others' tools if one fails; also tools.disabled, and limits.",
)
@REST
@click.pass_context
def list_tools(ctx: click.Context, /, as_json: bool, servers: bool, rest: tuple[str, ...], **where: Any) -> None:
    """List the tools: name, origin, description, arguments."""
    if servers:
        ctx.exit(_list_all(where, task_options(rest), as_json))

    async def look(runtime: TaskRuntime) -> list[tuple[ToolSpec, str]]:
        from rlfactory_core.tools.sources import ServerTool

        servers = {tool.spec.name: tool.server for tool in runtime.tools if isinstance(tool, ServerTool)}
        origins = {name: f"MCP server {server}" for name, server in servers.items()}
        return [(spec, origins.get(spec.name, "task")) for spec in runtime.manager.specs]

    found = _use_tools(_task(where, task_options(rest))[1], look)
    if as_json:
        echo_json([spec.function_schema for spec, _ in found])
    elif not found:
        echo("There are no tools. They come with a task (--plugin NAME) or from MCP servers (--mcp mcp.json).")
    else:
        _print(found, sys.stdout)


def _list_all(where: Mapping[str, Any], overrides: Sequence[str], as_json: bool) -> int:
    """Each tool, offered or not, and the state of each server; returns the exit code."""
    from rlfactory_core.tools.limits import limits_by_tool, only_about
    from rlfactory_core.tools.sources import ServerState, ServerTool

    config, setup, sources = _task(where, overrides, without_sources=True)

    async def look(runtime: TaskRuntime) -> tuple[Sequence[Tool], Sequence[ServerState]]:
        tools, states = [*runtime.tools], list[ServerState]()
        for try_servers, given in ((each.traits.try_servers, each.given) for each in sources):
            if try_servers is not None:
                added, tried = await try_servers(given, [tool.spec.name for tool in tools])
                tools, states = [*tools, *added], [*states, *tried]
        return tools, states

    found, states = _use_tools(setup, look)
    failed = any(state.problem for state in states)
    known = only_about(config, found) if failed else config
    limits = limits_by_tool(known, found)
    origins = {tool.spec.name: tool.server for tool in found if isinstance(tool, ServerTool)}
    if as_json:
        records = [
            {
                **tool.spec.function_schema,
                "server": origins.get(tool.spec.name),
                "disabled": tool.spec.name in known.disabled,
                "limits": limits[tool.spec.name].model_dump(),
            }
            for tool in found
        ]
        echo_json({"tools": records, "servers": [asdict(state) for state in states]})
    else:
        for tool in found:
            off = "  disabled" if tool.spec.name in known.disabled else ""
            echo(f"{tool.spec.name}  {origins.get(tool.spec.name, 'task')}{off}")
        for state in states:
            echo(f"MCP server {state.name}: {f'failed: {state.problem}' if state.problem else 'ready'}")
    return 1 if failed else 0


@tools.command(context_settings=SETTINGS)
@click.argument("name")
@_where
@click.option("--json", "as_json", is_flag=True, help="The whole result as JSON.")
@click.argument(
    "rest", nargs=-1, type=click.UNPROCESSED, metavar="[ARGUMENT=VALUE | JSON] [--TASK-OPTION VALUE] [KEY.KEY=VALUE]..."
)
@click.pass_context
def call(ctx: click.Context, /, name: str, as_json: bool, rest: tuple[str, ...], **where: Any) -> None:
    """Call the tool NAME as a model's call would be: checked, with its deadline, cut to size.

    Arguments as one JSON object, '{"query": "x", "k": 3}', or each as query=x k=3. A KEY with a dot in it, such as
    tools.deadline_s=5, is one of the configuration. Standard output gets what the model would see; the exit code is 1
    where the call ended in a fault. The episode is of the task's first sample, and its environment has been started.
    """
    objects = [word for word in rest if word.startswith("{")]
    words = task_options([word for word in rest if not word.startswith("{")])
    given = [word for word in words if "." not in word.partition("=")[0]]
    overrides = [word for word in words if word not in given]

    async def invoke(runtime: TaskRuntime) -> ToolResult:
        from rlfactory_core.context import ToolContext
        from rlfactory_core.protocols import EnvStart
        from rlfactory_core.rollout import ask_env

        spec = next((spec for spec in runtime.manager.specs if spec.name == name), None)
        arguments = _arguments(objects, given, spec)
        samples = runtime.setup.samples("train") if runtime.setup.data.train else runtime.task.samples("train")
        sample = next(iter(samples), Sample("by-hand", ""))
        context = ToolContext("by-hand", sample)
        env = runtime.episode(sample, 0.0, 0, "by-hand", None).make_env(sample, context)
        async with AsyncExitStack() as ends:
            ends.push_async_callback(context.end)
            ends.push_async_callback(ask_env, env, "close", object)
            await ask_env(env, "start", EnvStart)  # it may prepare what the tool reads, such as the context's state
            (result,) = await runtime.manager.invoke([ToolCall("1", name, json.dumps(arguments), arguments)], context)
            return result

    result = _use_tools(_task(where, overrides)[1], invoke)
    if as_json:
        echo_json(asdict(result))
    else:
        fault = f"{result.fault.value} fault" if result.fault else "no fault"
        facts = [fault, f"{result.latency_s:.3f} s", count_text(result.attempts, "attempt")]
        echo(result.content)
        echo(", ".join([*facts, *(word for word in ("cached", "truncated") if getattr(result, word))]), err=True)
    ctx.exit(1 if result.fault else 0)


def _task(
    where: Mapping[str, Any], overrides: Sequence[str], *, without_sources: bool = False
) -> tuple[ToolsConfig, TaskSetup, Sequence[NamedSource]]:
    """The tools' section, the task that it belongs to, with the task's own tools alone if wanted, and the sources."""
    from rlfactory_core.plugins.registry import Registry
    from rlfactory_core.runner.making import named_source
    from rlfactory_core.runner.resolved import look_up
    from rlfactory_core.runner.resolving import configured, read

    given = dict(where)
    file = given.pop("file")
    config, registry, tasks = configured(Registry(), read(file, [nested(given, PLACES), *overrides]))
    section = config.tools
    sources = [named_source(name, given, registry) for name, given in section.sources.items()]
    if without_sources:
        own = section.model_copy(update={"sources": {}, "overrides": {}, "disabled": ()})
        config = config.model_copy(update={"tools": own})
    return section, look_up(config, registry, tasks).tasks.only, sources


def _use_tools(setup: TaskSetup, use: Callable[[TaskRuntime], Awaitable[Found]]) -> Found:
    """Start the tools as a run does, use them and stop them, also after Ctrl-C."""
    from rlfactory_core.cli.ui.progress import make_progress
    from rlfactory_core.tasks.runtime import TaskRuntime

    async def session() -> Found:
        runtime = TaskRuntime(setup)
        try:
            with make_progress(sys.stderr) as progress:
                await runtime.open(progress)
            return await use(runtime)
        finally:
            await runtime.close()

    return asyncio.run(session())


def _arguments(objects: Sequence[str], given: Sequence[str], tool: ToolSpec | None) -> dict[str, Any]:
    """The arguments from the words of the command line; the tool's schema determines the types of values."""
    from rlfactory_core.chat.parsers.json_calls import typed

    arguments: dict[str, Any] = {}
    for text in objects:
        try:
            arguments |= json.loads(text)
        except ValueError as error:
            raise UsageError(f"{text} is not a JSON object: {error}.") from None
    for word in given:
        name, _, text = word.partition("=")
        arguments[name] = typed(text, tool, name)
    return arguments


def _print(tools: Sequence[tuple[ToolSpec, str]], stream: TextIO) -> None:
    """Print each tool with its origin, such as ``task``, and its arguments; with colours only on a terminal."""
    console = make_console(stream, width=None if stream.isatty() else 100)
    for number, (spec, origin) in enumerate(tools):
        if number:
            console.print()
        console.print(Text.assemble((spec.name, "bold"), (f"  ({origin})", "dim")))
        console.print(Padding(Text(spec.description.strip()), (0, 0, 0, 2), expand=False))
        if missing := undescribed(spec):
            console.print(Text(f"  The model is not told {', nor '.join(missing)}.", style="yellow"))
        if spec.parameters.get("properties"):
            console.print(_argument_table(spec.parameters))
        else:
            console.print(Text("    takes no arguments", style="dim"))


def _argument_table(parameters: Schema) -> Table:
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
