"""The code interpreter: a notebook for the model, and what becomes of its processes."""

from __future__ import annotations

import asyncio
import os
import pickle
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from process_tree import is_running, state
from rlfactory_interpreter import CodeInterpreter, code_interpreter
from tests.support.interpreters import own_folder, play, run, trajectory
from tests.support.tool_calls import manage, write
from tests.support.waiting import until

from rlfactory_core import ToolContext, ToolError, UsageError
from rlfactory_core.protocols import Tool
from rlfactory_core.tools import DefaultToolManager
from rlfactory_core.types import FaultKind, ToolResult

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the code interpreter needs Linux or macOS")


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    yield from own_folder(tmp_path, monkeypatch)


@pytest.mark.slow
def test_variables_stay_and_the_value_of_a_last_expression_is_shown() -> None:
    results = play("x = 20", "print('twenty')\nx + 1", "_ * 2", "None", "'text'")
    assert [item.content for item in results] == ["(no output)", "twenty\n21\n", "42\n", "(no output)", "'text'\n"]
    assert all(item.fault is None for item in results)


@pytest.mark.slow
def test_what_is_printed_comes_in_order_and_files_stay() -> None:
    prints = "import os, sys\nprint('a')\nprint('b', file=sys.stderr)\nos.write(1, b'c\\n')"
    writes = "open('f.py', 'w').write('y = 7')"
    assert [item.content for item in play(f"{prints}\n{writes}", "import f\nf.y")] == ["a\nb\nc\n5\n", "7\n"]


def test_an_exception_is_the_tools_fault_and_shows_the_models_own_lines_only() -> None:
    (result,) = play("import json\ndef read(text):\n    return json.loads(text)\nread('{')")
    assert result.fault is FaultKind.TOOL
    assert result.content.startswith("Error: the code raised an exception.\nTraceback (most recent call last):\n")
    assert "File \"<cell 1>\", line 4, in <module>\n    read('{')\n" in result.content
    assert 'File "<cell 1>", line 3, in read\n    return json.loads(text)\n' in result.content
    assert result.content.count("File ") == 2
    assert "JSONDecodeError: Expecting property name" in result.content


def test_the_models_own_modules_are_shown_by_their_names() -> None:
    write_module = "open('mine.py', 'w').write('def divide(a):\\n    return a / 0')"
    *_, result = play(write_module, "import mine\nmine.divide(1)")
    assert 'File "mine.py", line 2, in divide' in result.content


GOES_ON = "print('here')\n1 + 1"
ODD = [
    ("x = (", "SyntaxError"),
    ("(" * 5000, "SyntaxError"),
    ("a = '\0'", "null bytes"),
    ("-" * 100_000 + "1", "Error"),
    ("print('\ud800')", "surrogates not allowed"),
    ("print('\\ud800 é 漢 \\x00')", "\\ud800 é 漢 \x00"),
    ("'\\ud800 é'", "'\\ud800 é'"),
    ("class A:\n    def __repr__(self): raise ValueError('no')\nA()", "ValueError: no"),
    ("class A(Exception):\n    def __str__(self): raise ValueError\nraise A", "\nA: <"),
    ("def f(): f()\nf()", "RecursionError"),
    ("def f(n): g(n + 1)\ndef g(n): f(n + 1)\nf(0)", "[...]"),
    ("try:\n    1 / 0\nexcept Exception as error:\n    raise KeyError('k') from error", "direct cause"),
    ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    ("exit()", "(no output)"),
    ("import sys\nsys.exit('enough')", "SystemExit: enough"),
    ("input()", "EOFError"),
    ("import os\nos.close(0); os.close(1); os.close(2)", "(no output)"),
    ("import sys\nsys.stdout = sys.stderr = sys.__stdout__ = None", "(no output)"),
    ("import sys\nsys.stdout.close()", "(no output)"),
    ("import sys, io\nsys.stdout = io.StringIO()\nprint('lost')", "(no output)"),
    ("class S:\n    def flush(self): raise SystemExit\nimport sys\nsys.stdout = S()", "(no output)"),
    ("globals().clear()", "(no output)"),
    ("", "(no output)"),
    ("# nothing", "(no output)"),
]


def test_odd_code_is_answered_and_the_interpreter_goes_on() -> None:
    async def work() -> list[tuple[str, str]]:  # without a manager, which would refuse or clean some of it
        tool, context = code_interpreter(), trajectory()
        try:
            return [(await _said(tool, code, context), await _said(tool, GOES_ON, context)) for code, _ in ODD]
        finally:
            await context.end()
            await tool.close()

    for (code, shown), (said, afterwards) in zip(ODD, asyncio.run(work()), strict=True):
        assert shown in said, code
        assert afterwards == "here\n2\n", code


async def _said(tool: CodeInterpreter, code: str, context: ToolContext) -> str:
    try:
        return await tool.call({"code": code}, context)
    except ToolError as error:
        return str(error)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exception groups came with 3.11")
def test_the_exceptions_of_a_group_are_shown() -> None:
    assert "ValueError: v" in play("raise ExceptionGroup('g', [ValueError('v')])")[0].content


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import os\nos._exit(3)", "the code ended the interpreter (exit status 3)"),
        ("import ctypes\nctypes.string_at(0)", "the code crashed the interpreter (Segmentation fault"),
        ("import os\nos.abort()", "the code crashed the interpreter (Abort"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "the code was killed"),
        pytest.param(
            "import os\nos.kill(os.getpid(), 40)",  # a signal without a name
            "the code crashed the interpreter (Real-time signal",
            marks=pytest.mark.skipif(sys.platform != "linux", reason="macOS has no such signals"),
        ),
        ("import os\nos.closerange(3, 64)", "the code cut the interpreter's connections"),
        ("import os\n[os.write(fd, bytes(9)) for fd in (3, 5)]", "the code cut the interpreter's connections"),
    ],
)
def test_code_that_ends_its_process_is_told_so_and_the_next_call_begins_anew(code: str, reason: str) -> None:
    before, ended, after = play(
        "x = 1; open('f', 'w').close()", "print('seen')\n" + code, "import os\n'x' in dir(), os.listdir()"
    )
    assert before.fault is None
    assert ended.fault is FaultKind.TOOL
    assert reason in ended.content
    assert "the next call begins anew" in ended.content
    assert "seen" in ended.content
    assert after.content == "(False, [])\n"


def test_calls_of_one_turn_run_in_their_order() -> None:
    async def work(manager: DefaultToolManager) -> tuple[ToolResult, ...]:
        context = trajectory()
        await run(manager, "order = []", context)
        calls = [write("code_interpreter", {"code": f"order.append({n})\nlen(order)"}) for n in range(20)]
        results = await manager.invoke(calls, context)
        assert (await run(manager, "order == list(range(20))", context)).content == "True\n"
        await context.end()
        return results

    assert [item.content for item in manage(work, code_interpreter())] == [f"{n}\n" for n in range(1, 21)]


def test_a_call_that_waits_too_long_for_others_is_not_run_and_is_nobody_elses_fault() -> None:
    async def work(manager: DefaultToolManager) -> tuple[ToolResult, ...]:
        context = trajectory()
        results = await manager.invoke([write("code_interpreter", {"code": "while True: pass"})] * 5, context)
        assert (await run(manager, "1", context)).content == "1\n"
        await context.end()
        return results

    results = manage(work, code_interpreter(seconds=0.3))
    assert {item.fault for item in results} == {FaultKind.TOOL}
    assert "ran for longer than 0.3 s" in results[0].content
    assert "the code was not run" in results[-1].content


def test_trajectories_do_not_see_each_other() -> None:
    async def work(manager: DefaultToolManager) -> None:
        contexts = [trajectory(str(n)) for n in range(8)]
        code = "import os\nmine = {n}\nopen('mine', 'w').write('{n}')\nos.getpid()"
        pids = await asyncio.gather(*(run(manager, code.format(n=n), item) for n, item in enumerate(contexts)))
        assert len({item.content for item in pids}) == 8
        seen = await asyncio.gather(
            *(run(manager, "mine, open('mine').read(), os.listdir()", item) for item in contexts)
        )
        assert [item.content for item in seen] == [f"({n}, '{n}', ['mine'])\n" for n in range(8)]
        await asyncio.gather(*(item.end() for item in contexts))

    manage(work, code_interpreter())


def test_at_the_end_of_a_trajectory_its_process_and_its_directory_are_gone(folders: Path) -> None:
    nested = "import os\nfor _ in range(300): os.mkdir('d'); os.chdir('d')\nos.mkdir('shut', 0)\nos.getpid()"

    async def work(manager: DefaultToolManager) -> None:
        context, other = trajectory(), trajectory("other")
        await run(manager, "x = 1", other)
        pid = int((await run(manager, nested, context)).content)
        assert is_running(pid)
        assert len(_directories(folders)) == 2
        await context.end()
        assert not is_running(pid)
        assert len(_directories(folders)) == 1
        assert (await run(manager, "x", other)).content == "1\n"
        await other.end()

    manage(work, code_interpreter())


def _directories(folders: Path) -> list[Path]:
    return [item for item in folders.glob("*/*") if item.is_dir()]


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_between_calls_the_process_stands_still() -> None:
    spin = "def spin():\n    while True: pass\nimport os, threading\nthreading.Thread(target=spin, daemon=True).start()"

    async def work(manager: DefaultToolManager) -> None:
        context = trajectory()
        pid = int((await run(manager, f"{spin}\nos.getpid()", context)).content)
        await asyncio.to_thread(until, lambda: state(pid) == "T", "the process to stand still")
        assert (await run(manager, "threading.active_count()", context)).content == "2\n"
        await context.end()

    manage(work, code_interpreter())


def test_a_call_that_is_cancelled_is_killed_and_the_next_begins_anew(folders: Path) -> None:
    async def work(manager: DefaultToolManager) -> None:
        context = trajectory()
        pid = int((await run(manager, "x = 1\nimport os\nos.getpid()", context)).content)
        call = asyncio.ensure_future(run(manager, "open('begun', 'w')\nwhile True: pass", context))
        await asyncio.to_thread(until, lambda: any(folders.glob("*/*/begun")), "the call to begin")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert (await run(manager, "'x' in dir()", context)).content == "False\n"
        await context.end()
        assert not is_running(pid)

    manage(work, code_interpreter())


def test_a_configured_deadline_cuts_a_call_as_it_does_with_any_tool() -> None:
    async def work(manager: DefaultToolManager) -> list[ToolResult]:
        context = trajectory()
        results = [await run(manager, code, context) for code in ("1", "import time; time.sleep(60)", "2")]
        await context.end()
        return results

    overrides = {"code_interpreter": {"deadline_s": 2.0}}
    results = manage(work, code_interpreter(), overrides=overrides)
    assert [item.fault for item in results] == [None, FaultKind.INFRA, None]


def test_a_tool_that_was_closed_can_be_used_again_and_in_another_event_loop() -> None:
    tool = code_interpreter()

    async def once() -> str:
        context = trajectory()
        try:
            return await tool.call({"code": "1"}, context)
        finally:
            await context.end()
            await tool.close()

    assert [asyncio.run(once()) for _ in range(2)] == ["1\n", "1\n"]


def test_a_lost_forkserver_costs_the_calls_under_way_only(folders: Path) -> None:
    async def work(manager: DefaultToolManager) -> None:
        context = trajectory()
        pid, forkserver = eval((await run(manager, "import os\nos.getpid(), os.getppid()", context)).content)
        call = asyncio.ensure_future(run(manager, "open('begun', 'w')\nwhile True: pass", context))
        await asyncio.to_thread(until, lambda: any(folders.glob("*/*/begun")), "the call to begin")
        os.kill(forkserver, signal.SIGKILL)
        assert (await call).fault is FaultKind.INFRA
        await asyncio.to_thread(until, lambda: not is_running(pid), "the process to end")
        assert (await run(manager, "1", context)).content == "1\n"
        await context.end()

    manage(work, code_interpreter())


_CLIENT = """
import asyncio, os, signal, sys
from rlfactory_interpreter import code_interpreter
from tests.support.interpreters import own_folder, trajectory

async def main():
    tool, context = code_interpreter(), trajectory()
    said = await tool.call({"code": "import os; os.getpid(), os.getppid(), os.getcwd()"}, context)
    if sys.argv[1:] and os.fork() == 0:
        signal.pause()
    print(said, end="", flush=True)
    await tool.call({"code": "while True: pass"}, context)

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("forks", [[], ["and forks"]])
def test_killing_our_process_leaves_neither_process_nor_directory(folders: Path, forks: list[str]) -> None:
    """Even if a fork of it lives on, which has its open connections."""
    root = Path(__file__).parents[2]
    environment = {**os.environ, "TMPDIR": str(folders)}
    command = [sys.executable, "-c", _CLIENT, *forks]
    with subprocess.Popen(
        command, cwd=root, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as client:
        assert client.stdout is not None
        pid, forkserver, folder = eval(client.stdout.readline())
        assert is_running(pid)
        assert Path(folder).exists()
        client.kill()
    try:
        until(lambda: not (is_running(pid) or is_running(forkserver) or any(folders.iterdir())), "all to go")
    finally:
        if forks:
            os.killpg(client.pid, signal.SIGKILL)


def _others(folder: Path, *known: Path) -> set[Path]:
    return set(folder.iterdir()).difference(known)


def test_the_leavings_of_forkservers_that_were_killed_with_their_clients_are_removed(folders: Path) -> None:
    dead, young, other = (folders / f"rlfactory-{name}" for name in ("code-dead", "code-young", "guards"))
    for folder in (dead, young, other):
        (folder / "1" / "deep").mkdir(parents=True)
        (folder / "forkserver.log").write_text("")
    early = folders / "rlfactory-code-early"  # killed before its log was made
    early.mkdir()
    for folder in (dead, early, other):
        os.utime(folder, (1, 1))

    async def work(manager: DefaultToolManager) -> None:
        context = trajectory()
        await run(manager, "x = 1", context)
        (live,) = _others(folders, young, other)
        os.utime(live, (1, 1))
        assert (await asyncio.to_thread(play, "1"))[0].fault is None  # another fork server
        assert (await run(manager, "x", context)).content == "1\n"
        await context.end()

    manage(work, code_interpreter())
    assert set(folders.iterdir()) == {young, other}
    shutil.rmtree(young)
    shutil.rmtree(other)


def test_modules_can_be_loaded_ahead() -> None:
    (result,) = play("import sys\n'decimal' in sys.modules, 'fractions' in sys.modules", preload=["decimal"])
    assert result.content == "(True, False)\n"


def test_output_is_the_same_in_every_run() -> None:
    code = "print({'a', 'b', 'c', 'd', 'e'}, hash('text'))"
    assert play(code)[0].content == play(code)[0].content


def test_a_process_that_does_not_start_is_an_infra_fault_with_the_reason_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    (result,) = play("1", preload=["encodings.mbcs"])  # can be imported on Windows only
    assert result.fault is FaultKind.INFRA
    assert "mbcs_encode" in caplog.text
    assert "mbcs" not in result.content


def test_it_is_a_tool_and_pickles() -> None:
    tool = pickle.loads(pickle.dumps(code_interpreter("python", description="Run Python.", seconds=5)))
    assert isinstance(tool, Tool)
    assert (tool.spec.name, tool.spec.description) == ("python", "Run Python.")
    assert tool.stateful
    assert not tool.idempotent
    assert tool.deadline_s is not None
    assert tool.deadline_s > 5 + 2 * 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"second": 1}, "no limit or guard 'second'. Did you mean 'seconds'"),
        ({"require": ["networks"]}, "Did you mean 'network'"),
        ({"seconds": 0}, "seconds must be a positive number, got 0"),
        ({"threads": 1.5}, "threads must be a positive whole number, got 1.5"),
        ({"memory_mb": float("nan")}, "memory_mb must be a positive number"),
        ({"preload": ["no_such_module.x"]}, "preload names 'no_such_module.x', which is not installed"),
    ],
)
def test_options_that_cannot_be_are_refused_where_they_are_written(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message.replace(".", r"\.")):
        code_interpreter(**options)  # type: ignore[arg-type]
