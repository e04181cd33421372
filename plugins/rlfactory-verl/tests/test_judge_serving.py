"""The judge's service with the real vLLM, which is installed where verl is."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import until

pytest.importorskip("vllm", reason="the server")
pytest.importorskip("rlfactory_judge", reason="the plugin")

import httpx
from judge_services import judging, question
from rlfactory_judge.contract import RefusedError, Reply
from tiny_judge import tiny_judge

pytestmark = pytest.mark.slow


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """The address of vLLM with a judge in miniature."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    model = tiny_judge(tmp_path / "model", context=512)
    # `vllm serve` asks for the distribution "vllm": the build for CPUs has another name.
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    command += ["--enforce-eager", "--dtype", "float32", "--served-model-name", "judge"]
    environment = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        until(lambda: process.poll() is not None or is_well(port), "vLLM to be ready", seconds=600.0)
        assert process.poll() is None, (tmp_path / "log").read_text()
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait()


def is_well(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False).is_success
    except httpx.TransportError:
        return False


def test_vllm_enforces_the_form(url: str) -> None:
    async def ask() -> None:
        # A random model writes without an end, so `auto` takes it for one that reasons in its text.
        async with judging(url, model="judge", output="json", max_tokens=64) as service:
            replies = await asyncio.gather(*(service.ask(question(f"{number}")) for number in range(4)))
        assert all(isinstance(reply, Reply) and 0.0 <= reply.values[0] <= 1.0 for reply in replies)
        async with judging(url, model="judge", output="text") as service:
            with pytest.raises(RefusedError, match="Lower max_tokens"):  # 2048 of 512
                await service.ask(question())

    asyncio.run(ask())
