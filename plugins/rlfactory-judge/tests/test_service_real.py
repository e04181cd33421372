"""The service against servers as they are, with a model that says noise unless its form is enforced."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from judge_services import judging, question
from judge_serving import descendants, is_alive, until
from rlfactory_judge.contract import RefusedError, Reply, UnreadableError
from rlfactory_judge.serving.local import LocalServer

from rlfactory_core.errors import UsageError

pytestmark = pytest.mark.slow


def test_transformers_serve_enforces_no_form_and_its_noise_is_no_score(tmp_path: Path) -> None:
    pytest.importorskip("fastapi", reason="needs transformers[serving]")
    from tiny_judge import tiny_judge

    async def work() -> None:
        async with LocalServer(tiny_judge(tmp_path / "judge")) as server:
            with pytest.raises(UsageError, match=r"output=json: .* does not enforce"):
                async with judging(server.url, model=server.model, output="json", max_tokens=32):
                    pass
            async with judging(server.url, model=server.model, output="auto", max_tokens=32) as service:
                asked = (service.ask(question(f"{number}")) for number in range(4))
                outcomes = await asyncio.gather(*asked, return_exceptions=True)
                assert all(isinstance(outcome, UnreadableError) for outcome in outcomes)
                counts = service.counts()
                assert (counts["unreadable"], counts["sampled_tokens"]) == (4, 4 * 32)
                assert service.spent == counts["prompt_tokens"] + counts["sampled_tokens"] > 4 * 32

    asyncio.run(work())


def test_vllm_enforces_the_form(tmp_path: Path) -> None:
    pytest.importorskip("vllm", reason="needs vLLM")
    from tiny_judge import tiny_judge

    async def work() -> None:
        async with LocalServer(tiny_judge(tmp_path / "judge", context=512), backend="vllm") as server:
            assert server.pid is not None
            family = descendants(server.pid)
            assert len(family) >= 3  # the guard, the API server, the engine
            async with judging(server.url, model=server.model, output="json", max_tokens=64) as service:
                replies = await asyncio.gather(*(service.ask(question(f"{number}")) for number in range(4)))
                assert all(isinstance(reply, Reply) and 0.0 <= reply.values[0] <= 1.0 for reply in replies)
            with pytest.raises(UsageError, match=r"reply of 512 tokens\. Lower max_tokens"):
                async with judging(server.url, model=server.model, output="json"):
                    pass
            async with judging(server.url, model=server.model, output="text") as service:
                with pytest.raises(RefusedError, match="Lower max_tokens"):  # 2048 of 512
                    await service.ask(question())
        await asyncio.to_thread(until, lambda: not any(map(is_alive, family)), "all of vLLM to end")

    asyncio.run(work())
