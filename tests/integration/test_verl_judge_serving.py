"""`judge serve` with the real vLLM: it is installed where verl is, so this runs with verl's tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("vllm", reason="the server")
pytest.importorskip("rlfactory_judge", reason="the plugin")

import httpx
from judge_serving import descendants, is_alive, save_tiny_model, until
from rlfactory_judge.serving.endpoint_file import read_endpoints

pytestmark = pytest.mark.slow


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """``judge serve`` with vLLM: its process and its endpoint file."""
    path, said = tmp_path / "endpoints.json", tmp_path / "said"
    model = save_tiny_model(tmp_path / "model")
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


def test_judge_serve_starts_vllm_and_a_kill_leaves_nothing(served: tuple[subprocess.Popen[bytes], Path]) -> None:
    process, path = served
    until(lambda: path.exists() or process.poll() is not None, "vLLM to be ready", seconds=600.0)
    assert process.poll() is None, (path.parent / "said").read_text()
    (url,) = read_endpoints(path).urls
    asked = {"model": "judge", "messages": [{"role": "user", "content": "Paris?"}], "max_tokens": 24}
    reply = httpx.post(f"{url}/chat/completions", json=asked, timeout=60.0, trust_env=False)
    assert reply.status_code == 200, reply.text
    family = descendants(process.pid)
    process.send_signal(signal.SIGKILL)
    process.wait()
    until(lambda: not any(map(is_alive, family)), "all of vLLM to end")
