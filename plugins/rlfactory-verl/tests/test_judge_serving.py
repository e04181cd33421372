"""`judge serve` and the judge's service with the real vLLM, which is installed where verl is."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from waiting import until

pytest.importorskip("vllm", reason="the server")
pytest.importorskip("rlfactory_judge", reason="the plugin")

from judge_services import judging, question
from process_tree import descendants, is_running
from rlfactory_judge.contract import RefusedError, Reply
from rlfactory_verl.cluster.processes import SHARED_MEMORY, shared_memory_of
from tiny_judge import tiny_judge

pytestmark = pytest.mark.slow


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """``judge serve`` with vLLM: its process and what it says."""
    said = tmp_path / "said"
    model = tiny_judge(tmp_path / "model", context=512)
    command = [sys.executable, "-m", "rlfactory_core", "judge", "serve", "--backend", "vllm", "--device", "cpu"]
    command += ["--model", str(model), "--port", "0"]
    command += ["--", "--enforce-eager", "--dtype", "float32", "--served-model-name", "judge"]
    environment = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"}
    with said.open("wb") as file:
        process = subprocess.Popen(command, env=environment, stderr=file)
    try:
        yield process, said
    finally:
        process.terminate()
        process.wait()


def test_vllm_enforces_the_form_and_a_kill_leaves_nothing(served: tuple[subprocess.Popen[bytes], Path]) -> None:
    process, said = served
    until(lambda: "--judge http" in said.read_text() or process.poll() is not None, "vLLM to be ready", seconds=600.0)
    assert process.poll() is None, said.read_text()
    (url,) = re.findall(r"--judge (\S+)", said.read_text())
    family = descendants(process.pid)
    assert len(family) >= 2  # the API server, the engine
    asyncio.run(ask(url))
    shared = shared_memory_of(map(psutil.Process, family))
    assert shared
    process.send_signal(signal.SIGKILL)
    process.wait()
    until(lambda: not any(map(is_running, family)), "all of vLLM to end")
    assert not [name for name in shared if (SHARED_MEMORY / name).exists()]


async def ask(url: str) -> None:
    # A random model writes without an end, so `auto` takes it for one that reasons in its text.
    async with judging(url, model="judge", output="json", max_tokens=64) as service:
        replies = await asyncio.gather(*(service.ask(question(f"{number}")) for number in range(4)))
    assert all(isinstance(reply, Reply) and 0.0 <= reply.values[0] <= 1.0 for reply in replies)
    async with judging(url, model="judge", output="text") as service:
        with pytest.raises(RefusedError, match="Lower max_tokens"):  # 2048 of 512
            await service.ask(question())
