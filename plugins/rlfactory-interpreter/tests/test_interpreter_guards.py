"""What the model's code cannot reach, on platforms that have the guards, and what is said on others."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from rlfactory_interpreter import code_interpreter, forkserver, process, tool
from tests.support.interpreters import own_folder, play, trajectory

from rlfactory_core import BackendError, UsageError
from rlfactory_core.types import FaultKind

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="these guards are Linux's")

CALL = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n(libc.{call}, ctypes.get_errno())"
NOT_PERMITTED, NO_SUCH_CALL = "(-1, 1)\n", "(-1, 38)\n"


@pytest.fixture(scope="module", autouse=True)
def all_guards() -> None:
    if missing := forkserver.missing_guards():
        pytest.skip(f"this machine lacks guards: {missing}")


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    yield from own_folder(tmp_path, monkeypatch)


def test_a_server_on_this_machine_is_not_reached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.0)
        code = f"import socket\nsocket.create_connection(('127.0.0.1', {server.getsockname()[1]}))"
        (result,) = play(code)
        assert result.fault is FaultKind.TOOL
        assert "PermissionError: [Errno 1]" in result.content
        with pytest.raises(BlockingIOError):
            server.accept()


REFUSED = [
    "import socket\nsocket.socket(socket.AF_UNIX)",
    "import socket\nsocket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)",
    "import urllib.request\nurllib.request.urlopen('http://127.0.0.1:9')",
    "import os\nwhile True: os.fork()",
    "import subprocess\nsubprocess.run(['true'])",
    "import os\nos.posix_spawn('/bin/true', ['true'], {})",
    "import os\nos.execv('/bin/true', ['true'])",
    "import multiprocessing\nmultiprocessing.Process(target=print).start()",
    "import os\nos.kill(os.getppid(), 9)",
    "import os\nos.kill(-1, 0)",
    "import os\nos.killpg(1, 0)",
    "import os, signal\nsignal.pidfd_send_signal(os.pidfd_open(os.getppid()), 9)",
    "import os\nopen(f'/proc/{os.getppid()}/environ').read()",
    "import os\nopen(f'/proc/{os.getppid()}/mem', 'rb')",
    "import os, resource\nresource.prlimit(os.getppid(), resource.RLIMIT_CPU, (1, 1))",
    "import os\nos.setpriority(os.PRIO_PROCESS, os.getppid(), 5)",
    "import os\nos.sched_setaffinity(os.getppid(), {0})",
    "import fcntl, os\nfcntl.fcntl(0, fcntl.F_SETOWN, os.getppid())",
    "import os\nos.memfd_create('m')",
    "open('/etc/passwd')",
    "import os\nos.listdir('/')",
    "import os\nos.listdir('..')",
    "open('../forkserver.log', 'a')",
    "open('/tmp/from-the-model', 'w')",
    "open('/dev/shm/from-the-model', 'w')",
    "import os\nos.mkdir('../more')",
    "import os\nos.rmdir(os.getcwd())",
    "import os\nos.symlink('/etc', 'link')\nos.listdir('link')",
    "import os\nos.rename('../forkserver.log', 'mine')",
]


def test_what_is_refused() -> None:
    _, *results, last = play("kept = 1", *REFUSED, "kept")
    answers = {code: item.content for code, item in zip(REFUSED, results, strict=True)}
    assert {code: text for code, text in answers.items() if "PermissionError" not in text} == {}
    assert last.content == "1\n"


REFUSED_CALLS = {
    "prctl(1, 0, 0, 0, 0)": NOT_PERMITTED,  # so as to outlive us
    "ptrace(16, 1, 0, 0)": NOT_PERMITTED,
    "unshare(0x10000000)": NOT_PERMITTED,
    "shmget(0, 4096, 0o600)": NOT_PERMITTED,
    "syscall(425, 1, None)": NO_SUCH_CALL,  # io_uring_setup, by which sockets could be had
    "syscall(435, None, 0)": NO_SUCH_CALL,  # clone3
    "syscall(100000)": NO_SUCH_CALL,  # newer than the filter
}


def test_what_is_refused_below_python() -> None:
    results = play(*(CALL.format(call=call) for call in REFUSED_CALLS))
    assert dict(zip(REFUSED_CALLS, (item.content for item in results), strict=True)) == REFUSED_CALLS


ORDINARY = [
    ("import threading\nt = threading.Thread(target=print, args=('thread',))\nt.start()\nt.join()", "thread\n"),
    ("import asyncio\nasync def f(): return 'loop'\nasyncio.run(f())", "'loop'\n"),
    ("import asyncio\nasyncio.run(asyncio.to_thread(int, '7'))", "7\n"),
    ("import os, signal\nsignal.signal(signal.SIGUSR1, print)\nos.kill(os.getpid(), signal.SIGUSR1)", "10 <frame"),
    ("import tempfile\nwith tempfile.TemporaryFile() as f: f.write(b'x')", "(no output)"),
    ("import shutil\nopen('a', 'w').write('x')\nshutil.copy2('a', 'b')", "'b'\n"),
    ("import sqlite3\nsqlite3.connect('db').execute('select 1').fetchall()", "[(1,)]\n"),
    ("import zoneinfo, random, statistics, decimal, fractions, re, itertools, datetime, uuid\n1", "1\n"),
    ("import os\nos.nice(0) <= os.nice(1)", "True\n"),
    ("import os, pathlib\npathlib.Path(os.devnull).write_text('x')", "1\n"),
    ("import os, sys\n(os.environ['HOME'] == os.environ['TMPDIR'] == os.getcwd(), sys.argv)", "(True, [''])\n"),
    ("import pickle\nclass A: pass\ntype(pickle.loads(pickle.dumps(A()))) is A", "True\n"),
]


def test_what_ordinary_code_does_works() -> None:
    results = play(*(code for code, _ in ORDINARY))
    answers = [(code, item.content[: len(shown)]) for (code, shown), item in zip(ORDINARY, results, strict=True)]
    assert answers == ORDINARY
    assert all(item.fault is None for item in results)


@pytest.mark.slow
def test_installed_packages_can_be_used() -> None:
    pytest.importorskip("numpy", reason="an installed package with compiled parts")
    code = "import numpy\nnumpy.linalg.solve([[2.0, 0.0], [0.0, 4.0]], [2.0, 2.0])"
    for named in ({"packages": ["numpy"]}, {"preload": ["numpy"]}):
        (result,) = play(code, **named)
        assert result.content == "array([1. , 0.5])\n"


def test_packages_that_nobody_named_are_not_read() -> None:
    """They may hold a benchmark's answers."""
    pytest.importorskip("numpy", reason="an installed package")
    spec = find_spec("pluggy")
    assert spec is not None
    imported, opened, used = play(
        "import pluggy", f"open({spec.origin!r})", "import numpy, sqlite3", packages=["numpy"]
    )
    assert [result.fault for result in (imported, opened, used)] == [FaultKind.TOOL, FaultKind.TOOL, None]
    assert "Permission denied" in opened.content


def test_files_elsewhere_keep_their_content_mode_and_dates(tmp_path: Path) -> None:
    """Landlock leaves modes and dates unguarded; the calls that change them have no effect."""
    precious = tmp_path / "precious"
    precious.write_text("answer")
    os.utime(precious, (1, 1))
    mode = precious.stat().st_mode
    changes = (
        "os.chmod(p, 0)", "os.utime(p, (5, 5))", "os.link(p, 'mine')", "os.truncate(p, 0)", "os.unlink(p)",
        "os.rename(p, 'mine')", "open(p).read()", "os.setxattr(p, 'user.x', b'1')", "os.chown(p, 1, 1)",
    )  # fmt: skip
    _, *results = play(f"import os\np = {str(precious)!r}", *changes)
    assert "answer" not in " ".join(item.content for item in results)
    assert precious.read_text() == "answer"
    assert (precious.stat().st_mode, precious.stat().st_mtime, precious.stat().st_uid) == (mode, 1, os.getuid())


def test_what_is_said_to_be_readable_can_be_read_and_not_written(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "table").write_text("1,2")
    path = str(tmp_path / "data" / "table")
    read, wrote = play(f"open({path!r}).read()", f"open({path!r}, 'a')", readable=[tmp_path / "data"])
    assert read.content == "'1,2'\n"
    assert "PermissionError" in wrote.content


FORGE = """
import os, signal, stat, time
def forge(call, failed=False):
    line = ('{"call": %d, "failed": %s}\\n' % (call, str(failed).lower())).encode()
    for number in range(3, 16):
        try:
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                os.write(number, line)
        except OSError:
            pass
"""


@pytest.mark.slow
@pytest.mark.parametrize("code", ["forge(2)", "forge(2); 1 / 0", "forge(2, True); print('later')", "forge(3)"])
def test_a_reply_that_the_code_writes_is_not_believed(code: str) -> None:
    _, forged, after = play(FORGE, code, "1 + 1")
    assert "the code cut the interpreter's connections" in forged.content
    assert after.content == "2\n"


def test_code_that_replies_and_stops_itself_is_found_out_by_the_next_call() -> None:
    _, _, after, then = play(FORGE, "forge(2); os.kill(os.getpid(), signal.SIGSTOP)", "1 + 1", "1 + 1")
    assert "the code cut the interpreter's connections" in after.content
    assert then.content == "2\n"


def test_our_environment_is_not_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "tell-nobody")
    monkeypatch.setenv("PYTHONSTARTUP", "/nowhere")
    (result,) = play("import os\nprint(sorted(os.environ))\nopen('/proc/self/environ').read()")
    assert "HOME" in result.content
    assert "SECRET_TOKEN" not in result.content
    assert "PYTHONSTARTUP" not in result.content


def test_all_guards_can_be_required_here() -> None:
    assert code_interpreter(require=tool.GUARDS).spec.name == "code_interpreter"


WITHOUT_SECCOMP = """
import json, os, platform, sys
platform.machine = lambda: "riscv64"
from rlfactory_sandbox import guards
missing = guards.enable(guards.Confinement(memory=2**30, file=2**20, open_files=64), os.getcwd())
try:
    open("/etc/passwd")
except PermissionError:
    missing["passwd"] = "guarded"
print(json.dumps(missing))
"""


def test_a_platform_without_a_filter_of_calls_says_so_and_keeps_the_other_guards(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_SECCOMP]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    why = "no list of system calls for riscv64"
    assert json.loads(done.stdout) == {"processes": why, "network": why, "passwd": "guarded"}


@pytest.mark.slow
def test_a_missing_guard_is_warned_of_once_and_refused_where_it_is_required(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lacking = {"network": "this kernel has none"}
    start = process.Interpreter.start

    async def start_without(*arguments: Any) -> process.Interpreter:
        started = await start(*arguments)
        started.missing = lacking
        return started

    monkeypatch.setattr(process.Interpreter, "start", start_without)
    with caplog.at_level(logging.WARNING):
        play("1")
    assert caplog.text.count("network (this kernel has none)") == 1

    insisting = code_interpreter(require=["network"])  # it could be had where the tool was made

    async def call() -> None:
        context = trajectory()
        try:
            await insisting.call({"code": "1"}, context)
        finally:
            await context.end()
            await insisting.close()

    with pytest.raises(BackendError, match="network cannot be guarded here"):
        asyncio.run(call())
    monkeypatch.setattr(tool, "missing_guards", lambda: lacking)
    with pytest.raises(UsageError, match="network cannot be guarded here"):
        code_interpreter(require=["memory", "network"])
