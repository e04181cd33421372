"""Tools written for Qwen-Agent: how they are made, what they are handed, and what becomes of their answers."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Dict, Union  # noqa: UP035 - as tools for Qwen-Agent write it

import pytest
from rlfactory_mcp import qwen_tool, qwen_tools
from tool_calls import invoke, manage, write

from rlfactory_core import ToolContext, UsageError
from rlfactory_core.errors import ToolArgumentsError
from rlfactory_core.protocols import Tool, ToolSource
from rlfactory_core.tools import DefaultToolManager
from rlfactory_core.types import FaultKind, Message, Sample, ToolResult

pytest.importorskip("qwen_agent", reason="needs rlfactory-core[qwen-agent]")

from qwen_agent.llm.schema import ContentItem
from qwen_agent.tools.base import TOOL_REGISTRY, BaseTool, ToolServiceError, register_tool
from qwen_agent.tools.simple_doc_parser import DocParserError

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


class Shows(BaseTool):  # type: ignore[misc]
    """Answers with what it was handed."""

    name = "shows"
    description = "Shows."
    parameters = SCHEMA

    def call(self, params: Union[str, dict], **kwargs: Any) -> Any:  # noqa: UP007
        return {"params": params, "type": type(params).__name__, "cfg": self.cfg}


class AsksForADict(Shows):
    def call(self, params: Dict[str, Any], **kwargs: Any) -> Any:  # noqa: UP006
        return super().call(params)


class WithoutHints(Shows):
    def call(self, params, **kwargs):  # type: ignore[no-untyped-def]
        return super().call(params)


class Asynchronous(Shows):
    async def call(self, params: str, **kwargs: Any) -> Any:
        await asyncio.sleep(0)
        return super().call(params)


class OldStyle(Shows):
    parameters = [
        {"name": "text", "type": "string", "description": "which", "required": True},
        {"name": "times", "type": "int", "enum": [1, 2]},
    ]


class Answers(Shows):
    """Gives or raises what it was configured with."""

    def call(self, params: str, **kwargs: Any) -> Any:
        if "error" in self.cfg:
            raise self.cfg["error"]
        return self.cfg["answer"]


def ask(item: Any, text: Any = "hé", **options: Any) -> ToolResult:
    return invoke(write("shows", {"text": text}), qwen_tool(item, **options))


@pytest.mark.parametrize(
    ("cls", "shown"),
    [
        (Shows, '{"params":"{\\"text\\": \\"hé\\"}","type":"str","cfg":{}}'),
        (WithoutHints, '{"params":"{\\"text\\": \\"hé\\"}","type":"str","cfg":{}}'),
        (Asynchronous, '{"params":"{\\"text\\": \\"hé\\"}","type":"str","cfg":{}}'),
        (OldStyle, '{"params":"{\\"text\\": \\"hé\\"}","type":"str","cfg":{}}'),
        (AsksForADict, '{"params":{"text":"hé"},"type":"dict","cfg":{}}'),
    ],
)
def test_tools_get_their_arguments_in_the_form_that_they_want(cls: type[Any], shown: str) -> None:
    assert (ask(cls).content, ask(cls()).content) == (shown, shown)


def test_an_instance_a_class_a_name_and_a_dict_all_make_a_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TOOL_REGISTRY, "shows", Shows)
    for item in (Shows({"a": 1}), {"name": "shows", "a": 1}):
        assert '"a":1' in ask(item).content
    for item in (Shows, "shows"):
        assert '"cfg":{"a":1}' in ask(item, a=1).content
    tool = qwen_tool("shows", idempotent=True, stateful=False, deadline_s=3.0)
    assert isinstance(tool, Tool)
    assert (tool.spec.name, tool.spec.description, tool.spec.parameters) == ("shows", "Shows.", SCHEMA)
    assert (tool.idempotent, tool.stateful, tool.deadline_s) == (True, False, 3.0)
    assert tool.version == qwen_tool("shows").version != qwen_tool("shows", a=1).version


def test_the_older_list_of_parameters_becomes_a_schema() -> None:
    tool = qwen_tool(OldStyle)
    assert tool.spec.parameters == {
        "type": "object",
        "properties": {
            "text": {"type": "string", "description": "which"},
            "times": {"type": "integer", "enum": [1, 2]},
        },
        "required": ["text"],
    }
    result = invoke(write("shows", {"times": 3}), tool)
    assert result.fault is FaultKind.POLICY
    assert "'text' (string: which) is missing" in result.content
    OldStyle.parameters, before = [{"type": "string"}], OldStyle.parameters
    try:
        with pytest.raises(UsageError, match="expected dicts with a name"):
            qwen_tool(OldStyle)
    finally:
        OldStyle.parameters = before


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("plain", "plain"),
        ({"a": ["é", None]}, '{"a":["é",null]}'),
        ([ContentItem(text="first"), ContentItem(image="/home/me/x.png"), ContentItem(text="")], "first\n[image]\n"),
        ([ContentItem(file="http://u:p@host/f")], "[file]"),
        ([], "[]"),
    ],
)
def test_answers_become_text(answer: Any, text: str) -> None:
    assert ask(Answers, answer=answer).content == text


def within(outer: Exception, inner: Exception) -> Exception:
    try:
        try:
            raise inner
        except Exception:
            raise outer  # noqa: B904 - as careless tools do
    except Exception as error:
        return error


@pytest.mark.parametrize(
    ("error", "fault", "text"),
    [
        (ToolServiceError(code="429", message="quota used up"), FaultKind.TOOL, "Error: quota used up"),
        (DocParserError(message="not a PDF"), FaultKind.TOOL, "Error: not a PDF"),
        (ToolServiceError(exception=ConnectionResetError("10.0.0.1")), FaultKind.INFRA, "not available"),
        (within(ToolServiceError(message="key=secret"), TimeoutError()), FaultKind.INFRA, "not available"),
        (within(DocParserError(message="/home/me/f"), OSError("no")), FaultKind.TOOL, "Error: shows failed (OSError)."),
        (ConnectionRefusedError("10.0.0.1"), FaultKind.INFRA, "not available"),
        (ValueError("/home/me"), FaultKind.TOOL, "Error: shows failed (ValueError)."),
        (ToolArgumentsError("no such city"), FaultKind.POLICY, "Error: no such city"),
    ],
)
def test_failures_are_told_apart_and_show_nothing_of_ours(error: Exception, fault: FaultKind, text: str) -> None:
    result = ask(Answers, error=error)
    assert result.fault is fault
    assert text in result.content
    assert not any(secret in result.content for secret in ("secret", "/home", "10.0.0"))


def test_what_qwen_agents_own_check_refuses_is_the_models_fault() -> None:
    class Strict(Shows):
        def call(self, params: str, **kwargs: Any) -> Any:
            self.parameters = {**SCHEMA, "properties": {"text": {"type": "string", "maxLength": 1}}}
            return self._verify_json_format_args(params)

    result = ask(Strict)
    assert result.fault is FaultKind.POLICY
    assert result.content == "Error: wrong arguments: 'hé' is too long"


def test_the_conversation_is_passed_to_those_who_take_it() -> None:
    class Reads(Shows):
        def call(self, params: str, **kwargs: Any) -> Any:
            return [f"{item.role}: {item.content}" for item in kwargs["messages"]]

    class Narrow(Shows):
        def call(self, params: str) -> str:
            return params

    prompt = (Message("system", "Be good."), Message("user", "Hi"), Message("tool", "x", tool_call_id="1", name="y"))

    async def work(manager: DefaultToolManager) -> ToolResult:
        (result,) = await manager.invoke([write("shows", {"text": ""})], ToolContext("t", Sample("s", prompt)))
        return result

    assert manage(work, qwen_tool(Reads)).content == '["system: Be good.","user: Hi","function: x"]'
    assert manage(work, qwen_tool(Narrow)).content == '{"text": ""}'


def test_blocking_tools_run_beside_each_other() -> None:
    meet = threading.Barrier(8)

    class Blocks(Shows):
        def call(self, params: str, **kwargs: Any) -> str:
            meet.wait(60)
            return "met"

    async def work(manager: DefaultToolManager) -> list[str]:
        calls = [write("shows", {"text": ""}, str(i)) for i in range(8)]
        return [result.content for result in await manager.invoke(calls, ToolContext("t", Sample("s", "?")))]

    assert manage(work, qwen_tool(Blocks)) == ["met"] * 8


class Counter(Shows):
    """Keeps its state on itself."""

    closed: list[int] = []

    def __init__(self, cfg: dict[str, Any] | None = None) -> None:
        super().__init__(cfg)
        self.count = 0

    def call(self, params: str, **kwargs: Any) -> Any:
        self.count += 1
        return self.count

    def close(self) -> None:
        self.closed.append(self.count)


@pytest.mark.parametrize(("per_trajectory", "counts", "closed"), [(True, "123 12", [3, 2]), (False, "123 45", [])])
def test_a_trajectory_may_have_an_instance_of_its_own(per_trajectory: bool, counts: str, closed: list[int]) -> None:
    Counter.closed = []

    async def work(manager: DefaultToolManager) -> str:
        said = []
        for number in (3, 2):
            context = ToolContext("t", Sample("s", "?"))
            said.append("".join([await one(manager, context) for _ in range(number)]))
            await context.end()
        return " ".join(said)

    async def one(manager: DefaultToolManager, context: ToolContext) -> str:
        return (await manager.invoke([write("shows", {"text": ""})], context))[0].content

    assert manage(work, qwen_tool(Counter, per_trajectory=per_trajectory)) == counts
    assert Counter.closed == closed


def test_an_instance_without_close_is_deleted_in_a_thread_at_the_trajectorys_end() -> None:
    gone: list[str] = []

    class WaitsForDocker(Shows):
        def __del__(self) -> None:
            gone.append(threading.current_thread().name)

    async def work(manager: DefaultToolManager) -> None:
        context = ToolContext("t", Sample("s", "?"))
        await manager.invoke([write("shows", {"text": ""})], context)
        assert gone == []
        await context.end()
        assert gone == ["tool-shows"]

    manage(work, qwen_tool(WaitsForDocker, per_trajectory=True))


def test_the_code_interpreter_is_a_trajectorys_own_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    class Kernel(Counter):
        name = "code_interpreter"

    async def work(manager: DefaultToolManager) -> list[str]:
        calls = [write("code_interpreter", {"text": ""})]
        return [(await manager.invoke(calls, ToolContext(name, Sample("s", "?"))))[0].content for name in "ab"]

    monkeypatch.setitem(TOOL_REGISTRY, "code_interpreter", Kernel)
    assert manage(work, *qwen_tools(["code_interpreter"])) == ["1", "1"]
    assert manage(work, qwen_tool("code_interpreter", per_trajectory=False)) == ["1", "2"]


def test_what_cannot_be_made_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no docker there
    with pytest.raises(UsageError, match=r"'code_interpreter' cannot be made here: .*Docker.* needs no Docker"):
        qwen_tool("code_interpreter")
    with pytest.raises(UsageError, match="'image_gen' cannot be made here: ValueError: llm_cfg is required"):
        qwen_tool({"name": "image_gen"})
    with pytest.raises(UsageError, match=r"no tool registered as 'storag'\. Did you mean 'storage'"):
        qwen_tool("storag")
    with pytest.raises(UsageError, match="expected a BaseTool, its class, a registered name"):
        qwen_tool(3)
    with pytest.raises(UsageError, match="shows is made already"):
        qwen_tool(Shows(), per_trajectory=True)


def test_qwen_agents_own_storage_works(tmp_path: Path) -> None:
    tool = qwen_tool("storage", storage_root_path=str(tmp_path / "kept"))

    def do(**given: str) -> ToolResult:
        return invoke(write("storage", given), tool)

    assert do(operate="put", key="/a/b", value="thing").content == "Successfully saved a/b."
    assert do(operate="get", key="/a/b").content == "thing"
    missing = do(operate="get", key="c")
    assert (missing.fault, missing.content) == (FaultKind.TOOL, "Error: Get Failed: c does not exist")
    assert do(key="c").fault is FaultKind.POLICY


def test_a_whole_function_list(tmp_path: Path) -> None:
    @register_tool("test_only_shows", allow_overwrite=True)
    class Registered(Shows):
        name = ""

    servers = {"mcpServers": {"time": {"command": "mcp-server-time"}}}
    try:
        storage = {"name": "storage", "storage_root_path": str(tmp_path)}
        found = qwen_tools([storage, "test_only_shows", Shows(), servers])
    finally:
        del TOOL_REGISTRY["test_only_shows"]
    assert [item.spec.name for item in found if isinstance(item, Tool)] == ["storage", "test_only_shows", "shows"]
    assert isinstance(found[3], ToolSource)


def test_ctrl_c_stays_what_it_was() -> None:
    """Importing Qwen-Agent puts a handler in front, which would end its containers while a step is still under way."""
    code = (
        "import signal; from rlfactory_mcp import qwen_tool\n"
        "before = signal.getsignal(signal.SIGINT)\n"
        "qwen_tool('web_search')\n"
        "assert signal.getsignal(signal.SIGINT) is before"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
