"""A judge's servers with the real vLLM: it is installed where verl is, so this runs with verl's tests."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm", reason="the server")
pytest.importorskip("rlfactory_judge", reason="the plugin")

import httpx
from judge_serving import is_alive, save_tiny_model, until
from rlfactory_judge.serving.endpoint_file import read_endpoints
from rlfactory_judge.serving.local import LocalServer

pytestmark = pytest.mark.slow

_SCHEMA = {
    "type": "object",
    "properties": {"score": {"type": "integer", "minimum": 0, "maximum": 10}},
    "required": ["score"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("model"))


def body(name: str, **more: Any) -> dict[str, Any]:
    return {"model": name, "messages": [{"role": "user", "content": "Paris?"}], "max_tokens": 24, **more}


def descendants(pid: int) -> set[int]:
    """Of a process, itself included."""
    found = {pid}
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in file.read_text().split():
            found |= descendants(int(child))
    return found


@pytest.fixture
def served(model: Path, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """``judge serve`` with vLLM: its process and its endpoint file."""
    path, said = tmp_path / "endpoints.json", tmp_path / "said"
    command = [sys.executable, "-m", "rlfactory_core", "judge", "serve", "--backend", "vllm", "--device", "cpu"]
    command += ["--model", str(model), "--port", "0", "--endpoints", str(path), "--logs", str(tmp_path / "logs")]
    command += ["--", "--enforce-eager", "--dtype", "float32", "--served-model-name", "judge"]
    environment = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"}
    with said.open("wb") as file:
        process = subprocess.Popen(command, env=environment, stderr=file)
    try:
        yield process, path
    finally:
        process.terminate()
        process.wait()


def test_vllm_on_the_cpu_enforces_the_form_of_an_answer(model: Path) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "verdict", "schema": _SCHEMA, "strict": True}}

    async def scenario() -> None:
        async with LocalServer(model, backend="vllm") as server, httpx.AsyncClient(trust_env=False) as client:
            guard = server.pid
            assert guard is not None
            family = descendants(guard)
            assert len(family) >= 3  # the guard, the API server, the engine

            async def ask(number: int) -> dict[str, Any]:
                asked = body(server.model, seed=number, temperature=1.0, response_format=form)
                reply = await client.post(f"{server.url}/chat/completions", json=asked, timeout=120.0)
                assert reply.status_code == 200, reply.text
                choice: dict[str, Any] = reply.json()["choices"][0]
                return choice

            for choice in await asyncio.gather(*map(ask, range(8))):
                if choice["finish_reason"] == "stop":  # a random model may write blanks until its tokens are spent
                    assert 0 <= json.loads(choice["message"]["content"])["score"] <= 10
        await asyncio.to_thread(until, lambda: not any(map(is_alive, family)), "all of vLLM to end")

    asyncio.run(scenario())


def test_judge_serve_starts_vllm_and_a_kill_leaves_nothing(served: tuple[subprocess.Popen[bytes], Path]) -> None:
    process, path = served
    until(lambda: path.exists() or process.poll() is not None, "vLLM to be ready", seconds=180.0)
    assert process.poll() is None, (path.parent / "said").read_text()
    (url,) = read_endpoints(path).urls
    reply = httpx.post(f"{url}/chat/completions", json=body("judge"), timeout=60.0, trust_env=False)
    assert reply.status_code == 200, reply.text
    family = descendants(process.pid)
    process.send_signal(signal.SIGKILL)
    process.wait()
    until(lambda: not any(map(is_alive, family)), "all of vLLM to end")
