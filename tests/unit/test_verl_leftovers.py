"""After a run no process and no shared memory of its own is left, and nobody else's is touched."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("psutil", reason="the verl engine needs it")
SHM = Path("/dev/shm")
pytestmark = pytest.mark.skipif(not SHM.is_dir(), reason="needs a file system for shared memory")

# In a process of its own, because `Leftovers` looks at all below its process and makes it a reaper of orphans.
PROGRAM = """
import json, os, signal, subprocess, sys
from pathlib import Path
from rlfactory_core.engines.verl import leftovers
from rlfactory_core.engines.verl.leftovers import Leftovers

leftovers.GRACE_S = 0.5
name = sys.argv[1]
shm = Path("/dev/shm")
STUBBORN = '''
import mmap, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
file = open(sys.argv[1], "wb+")
file.write(b"x" * 4096); file.flush()
memory = mmap.mmap(file.fileno(), 4096)
print(flush=True)
time.sleep(600)
'''
PARENT = '''
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", sys.argv[1], sys.argv[2]], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
if sys.argv[3] == "waits":
    time.sleep(600)
'''

def below(where, stays):
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, STUBBORN, str(where), stays], stdout=subprocess.PIPE, text=True
    )
    grandchild = int(parent.stdout.readline())
    if stays != "waits":
        parent.wait()
    return parent, grandchild

(shm / f"{name}-before").write_text("x")
old, old_child = below(shm / f"{name}-old", "waits")
watched = Leftovers.watch()
new, new_child = below(shm / f"{name}-new", "waits")
_, orphan = below(shm / f"{name}-orphan", "ends")
(shm / f"{name}-file").write_text("x")
print("ready", flush=True)
sys.stdin.readline()  # meanwhile another program, not below this one, makes a file
watched.clear()

def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False

print(json.dumps({
    "alive": {k: alive(v) for k, v in dict(
        old=old.pid, old_child=old_child, new=new.pid, new_child=new_child, orphan=orphan).items()},
    "zombies": [p for p in (new.pid, new_child, orphan) if Path(f"/proc/{p}").exists()],
    "files": sorted(path.name.removeprefix(name + "-") for path in shm.glob(f"{name}-*")),
}), flush=True)
os.kill(old_child, signal.SIGKILL)
old.kill()
"""


@pytest.fixture
def name() -> Iterator[str]:
    """What the test's files in shared memory begin with."""
    made = f"rlf-test-{uuid.uuid4().hex[:12]}"
    yield made
    for path in SHM.glob(f"{made}-*"):
        path.unlink()


def test_what_a_run_started_is_gone_and_all_else_stays(name: str) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    try:
        assert program.stdout is not None
        program.stdout.readline()
        with (SHM / f"{name}-theirs").open("wb+"):  # of a program that is not below the run
            out, errors = program.communicate("go\n", timeout=60)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
    assert program.returncode == 0, errors
    found = json.loads(out)
    assert found["alive"] == {"old": True, "old_child": True, "new": False, "new_child": False, "orphan": False}
    assert found["zombies"] == []
    assert found["files"] == ["before", "old", "theirs"]
