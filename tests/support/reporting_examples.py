"""Trajectories and a run's folder as a real run leaves them, for the tests of reporting, trace and summary."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from click.testing import CliRunner

from rlfactory_core.cli.trace import trace
from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.types import (
    Fault,
    FaultKind,
    Group,
    Message,
    Sample,
    Score,
    StopReason,
    ToolCall,
    ToolResult,
    ToolSpec,
    Trajectory,
    Turn,
    Verdict,
)

PROMPT = "<|im_start|>system\nYou may search.<|im_end|>\n<|im_start|>user\nWhere is Orla Finn's firm?<|im_end|>\n"
CALL = "<tool_call>search Orla Finn</tool_call>"
TEXTS = (PROMPT, CALL, "<tool_response>Orla Finn leads Velk Works.</tool_response>")


def decode(ids: Sequence[int]) -> str:
    """One character a token."""
    return "".join(map(chr, ids))


def encode(text: str) -> tuple[int, ...]:
    return tuple(map(ord, text))


def make_trajectory(
    reward: float = 1.0,
    *,
    sample: str = "q1",
    hops: str = "two_hop",
    attempt: int = 0,
    answer: str = "Tarn",
    faults: tuple[Fault, ...] = (),
    calls: int = 1,
) -> Trajectory:
    """``calls`` searches and then an answer."""
    query = '{"query": "Orla Finn"}'
    searches = tuple(
        Turn(
            context_ids=encode(TEXTS[0] if index == 0 else TEXTS[2]),
            sampled_ids=encode(TEXTS[1]),
            logprobs=tuple(-0.125 * (1 + i % 7) for i in range(len(TEXTS[1]))),
            message=Message(
                "assistant",
                "",
                reasoning="I look it up.",
                tool_calls=(ToolCall(f"c{index}", "search", query, {"query": "Orla Finn"}),),
            ),
            results=(
                ToolResult(f"c{index}", "search", "Orla Finn leads Velk Works.", latency_s=0.0125, size_bytes=27),
            ),
            sample_s=0.25,
            tools_s=0.0125,
        )
        for index in range(calls)
    )
    text = f"<answer>{answer}</answer>"
    last = Turn(
        context_ids=encode(TEXTS[2] if calls else TEXTS[0]),
        sampled_ids=encode(text),
        logprobs=(-0.5,) * len(text),
        message=Message("assistant", text),
        version=3,
        reward=0.0,
    )
    components = {"exact_match": float(reward >= 1), "format": 1.0}
    verdicts = {"exact_match": Verdict(reward >= 1, ("compared",), {"gold": "Tarn"})}
    return Trajectory(
        sample=Sample(sample, "Where is Orla Finn's firm?", "Tarn", {"hops": [1, 2]}, "eval", hops),
        attempt=attempt,
        turns=(*searches, last),
        stop=StopReason.FINAL_ANSWER,
        faults=faults,
        score=Score(reward, components, (), verdicts, {"exact_match": 0.001}),
        seconds=0.5,
        tools=(ToolSpec("search", "Search the documents.", {"type": "object"}),),
    )


def with_images(trajectory: Trajectory, asked: str, returned: str) -> Trajectory:
    """A trajectory whose prompt names the one image, and whose first tool returns the other."""
    first, *others = trajectory.turns
    results = (replace(first.results[0], content=f"Look: {returned}"),)
    sample = replace(trajectory.sample, prompt=f"What is {asked}?")
    return replace(trajectory, sample=sample, turns=(replace(first, results=results), *others))


def infra_fault() -> Fault:
    return Fault(FaultKind.INFRA, "search", "no answer within 30 s", 0)


def make_group(rewards: Sequence[float], **options: str) -> Group:
    trajectories = tuple(make_trajectory(reward, attempt=i, **options) for i, reward in enumerate(rewards))  # type: ignore[arg-type]
    return Group(trajectories[0].sample, trajectories)


SUMMARY = {
    "plugin": "search",
    "engine": "local",
    "model": "tiny (0.3 M)",
    "seed": 0,
    "steps": 60,
    "seconds": 127.4,
    "sampled_tokens": 345678,
    "trained_tokens": 300123,
    "faults": {"policy": 41, "tool": 0, "infra": 0, "verifier": 0},
    "eval": {
        "before": {
            "exact_match": 0.5,
            "exact_match/one_hop": 1.0,
            "exact_match/two_hop": 0.0,
            "sampled/exact_match": 0.23,
            "sampled/exact_match/one_hop": 0.41,
            "sampled/exact_match/two_hop": 0.05,
            "pass@4": 0.52,
        },
        "after": {
            "exact_match": 0.985,
            "exact_match/one_hop": 1.0,
            "exact_match/two_hop": 0.97,
            "sampled/exact_match": 0.94,
            "sampled/exact_match/one_hop": 0.97,
            "sampled/exact_match/two_hop": 0.91,
            "pass@4": 1.0,
            "control/empty_search/exact_match": 0.005,
        },
    },
}


def write_run(folder: RunFolder, steps: int = 60) -> None:
    """Metrics, trajectories and summary of a run that learned."""
    noise = random.Random(0)
    for step in range(1, steps + 1):
        learned = min(1.0, step / 40)
        score = 0.25 + 0.7 * learned + noise.uniform(-0.06, 0.06)
        metrics = {
            "reward": score + 0.1,
            "reward_std": 0.4 - 0.3 * learned,
            "exact_match": score,
            "exact_match/one_hop": min(1.0, score + 0.2),
            "exact_match/two_hop": max(0.0, score - 0.15),
            "format": 0.98,
            "tool_calls": 1.1 + 0.6 * learned + noise.uniform(-0.05, 0.05),
            "turns": 2.1 + 0.6 * learned,
            "sampled_tokens": 31 + 12 * learned + noise.uniform(-2, 2),
            "stop/final_answer": 0.9 + 0.1 * learned,
            "stop/length": 0.1 - 0.1 * learned,
            "faults/policy": float(noise.randint(0, 3)),
            "faults/infra": 0.0,
            "masked": 0.0,
            "equal_groups": 2 + 10 * learned,
            "loss": noise.uniform(-0.02, 0.02) if step != 7 else float("nan"),
            "kl": 0.001 * step,
            "grad_norm": noise.uniform(0.2, 0.6),
            "clip_fraction": noise.uniform(0, 0.02),
            "entropy": 0.6 - 0.4 * learned,
            "mismatch_kl": noise.uniform(0, 1e-6),
            "lr": 5e-4,
            "rollout_s": 0.7 + noise.uniform(0, 0.1),
            "update_s": 0.4,
            "step_s": 1.15,
            "sampled_tokens_s": 8000 + noise.uniform(-400, 400),
            "trained_tokens_s": 12000.0,
        }
        if step % 10 == 0:
            metrics["eval/exact_match"] = 0.5 + 0.48 * learned
            metrics["eval/exact_match/one_hop"] = 1.0
            metrics["eval/exact_match/two_hop"] = 0.97 * learned
        folder.append_metrics(step, metrics)
    folder.write_trajectories(10, [make_trajectory(0.1 * i, attempt=i) for i in range(4)], decode)
    slices = ("one_hop", "two_hop")
    before = [make_trajectory(0.1, sample=f"q{i}", answer="Velk Works", hops=s) for i, s in enumerate(slices)]
    after = [make_trajectory(1.1, sample=f"q{i}", calls=2, hops=s) for i, s in enumerate(slices)]
    folder.write_trajectories("eval-before", before, decode)
    folder.write_trajectories("eval-after", after, decode)
    folder.write_summary(SUMMARY)


def finished_run(root: Path) -> RunFolder:
    folder = RunFolder.create("search", root=root)
    folder.write_config({"plugin": "search", "engine": "local", "seed": 0})
    write_run(folder)
    return folder


def run_trace(*arguments: str) -> str:
    """What ``rlfactory trace`` prints; its errors are raised."""
    result = CliRunner().invoke(trace, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output
