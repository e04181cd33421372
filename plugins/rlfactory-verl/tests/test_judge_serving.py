"""What asks a server: a judge and a teacher, with the real vLLM, which is installed where verl is."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from waiting import until

pytest.importorskip("vllm", reason="the server")
pytest.importorskip("rlfactory_judge", reason="the plugin")

import httpx
import torch
from judge_services import judging, question
from rlfactory_judge.contract import RefusedError, Reply
from tiny_judge import tiny_judge

from rlfactory_core.clients import ServerTeacher
from rlfactory_core.errors import ConfigError
from rlfactory_core.types import TaughtToken, TrainSequence

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A judge in miniature."""
    return tiny_judge(tmp_path_factory.mktemp("judge") / "model", context=512)


@pytest.fixture(scope="module")
def url(model: Path) -> Iterator[str]:
    """The address of vLLM with the model."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    # `vllm serve` asks for the distribution "vllm": the build for CPUs has another name.
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    command += ["--enforce-eager", "--dtype", "float32", "--served-model-name", "judge"]
    environment = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    with (model.parent / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        until(lambda: process.poll() is not None or is_well(port), "vLLM to be ready", seconds=600.0)
        assert process.poll() is None, (model.parent / "log").read_text()
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


def test_the_log_probs_of_a_teacher_are_those_of_its_model(url: str, model: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer, loaded = AutoTokenizer.from_pretrained(model), AutoModelForCausalLM.from_pretrained(model).float()
    rows = [tuple(tokenizer.encode(text)) for text in ("What is the capital of Ghana? Accra.", "yes", "{" * 200)]
    sequences = [TrainSequence(ids, (0, *(1,) * (len(ids) - 1)), (0.0,) * len(ids), (0.0,) * len(ids)) for ids in rows]

    async def ask(max_tokens: int, likely: int = 5) -> Sequence[Sequence[TaughtToken]]:
        teacher = ServerTeacher(url)
        try:
            await teacher.open(tokenizer, max_tokens, likely)
            return await teacher.score(sequences, likely)
        finally:
            await teacher.close()

    for ids, found in zip(rows, asyncio.run(ask(511)), strict=True):
        with torch.no_grad():
            logprobs = loaded(torch.tensor([ids])).logits[0, :-1].log_softmax(-1)
        own = logprobs.gather(1, torch.tensor(ids[1:])[:, None])[:, 0].tolist()
        assert [each.logprob for each in found] == pytest.approx(own, abs=1e-3)
        for each, best in zip(found, logprobs.topk(5, -1).values.tolist(), strict=True):
            assert each.logprobs == pytest.approx(best, abs=1e-3)
    with pytest.raises(ConfigError, match="its context is 512 tokens"):
        asyncio.run(ask(512))
    with pytest.raises(ConfigError, match="--max-logprobs 21"):  # vLLM's limit is 20
        asyncio.run(ask(511, 21))
