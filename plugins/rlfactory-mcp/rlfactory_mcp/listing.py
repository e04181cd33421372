"""Reads what a server says of itself and of its tools, also where it does not quite follow the protocol.

One odd tool does not end the others: what is plain is read as it is meant, and a tool that cannot be used is left out
and named. What the client does not use (titles, icons, schemas of results) may be anything.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from rlfactory_core.errors import UsageError
from rlfactory_core.tools import mended
from rlfactory_core.utils.display import shortened
from rlfactory_mcp.compat import ListedTool, Listing, RpcError, Session

_UNSAID_S = 5.0  # for a server to list tools though it does not say that it has any
_SCHEMAS = ("inputSchema", "input_schema", "parameters")  # the first is the protocol's


async def introduce(session: Session) -> Listing:
    """Do the handshake and read the list of tools."""
    answer = await session.introduce()
    info = answer.get("serverInfo")
    info = info if isinstance(info, Mapping) else {}
    identity = " ".join(str(info[key]) for key in ("name", "version") if info.get(key) is not None)
    problems = [session.problem] if session.problem else []
    capabilities = answer.get("capabilities")
    if isinstance(capabilities, Mapping) and capabilities.get("tools") is not None:
        tools = await list_tools(session, problems)
    else:
        tools = []
        with suppress(TimeoutError, RpcError):
            async with asyncio.timeout(_UNSAID_S):
                tools = await list_tools(session, problems)
    return Listing(identity, tuple(tools), tuple(problems))


async def list_tools(session: Session, problems: list[str]) -> list[ListedTool]:
    """All pages of the list.

    Args:
        problems: gets what was left out or read as something else.
    """
    tools: dict[str, ListedTool] = {}
    cursors: list[Any] = [None]
    while True:
        page = await session.request("tools/list", {} if cursors[-1] is None else {"cursor": cursors[-1]})
        read = list(_read_page(page, problems))
        problems += [_twice(tool.name) for tool in read if tools.setdefault(tool.name, tool) != tool]
        cursor = page.get("nextCursor")
        if not cursor or cursor in cursors:
            return list(tools.values())
        cursors.append(cursor)


def _twice(name: str) -> str:
    return f"a second tool named {name!r} is left out, because a call could mean either"


def _read_page(page: Mapping[str, Any], problems: list[str]) -> Iterator[ListedTool]:
    entries = page.get("tools")
    if not isinstance(entries, list):
        problems.append(f"its answer to tools/list has no list of tools: {_shown(page)}")
        return
    for number, entry in enumerate(entries):
        name = entry.get("name") if isinstance(entry, Mapping) else None
        if not isinstance(entry, Mapping):
            problems.append(f"entry {number} of its tools is left out: it is {_shown(entry)}")
        elif not isinstance(name, str) or not name:
            problems.append(f"entry {number} of its tools is left out: its name is {_shown(name)}")
        else:
            yield from _read_tool(name, entry, problems)


def _read_tool(name: str, entry: Mapping[str, Any], problems: list[str]) -> Iterator[ListedTool]:
    key = next((key for key in _SCHEMAS if entry.get(key) is not None), _SCHEMAS[0])
    try:
        parameters = mended(entry.get(key))
    except UsageError as error:
        problems.append(f"the tool {name!r} is left out because of its {key}: {error}")
        return
    problems += [f"the tool {name!r}: {key}.{change}" for change in parameters.changes]
    description = entry.get("description")
    if not isinstance(description, (str, type(None))):
        problems.append(f"the tool {name!r}: its description is left out: it is {_shown(description)}")
        description = None
    hints = entry.get("annotations")
    said = hints if isinstance(hints, Mapping) else {}
    harmless = said.get("readOnlyHint") is True or said.get("idempotentHint") is True
    yield ListedTool(name, description or "", parameters.schema, harmless)


def _shown(value: Any) -> str:
    return shortened(json.dumps(value), 60)
