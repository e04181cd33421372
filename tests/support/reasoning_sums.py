"""A task set of verifiers with the sums of two numbers that reasoning-gym poses and scores."""

from __future__ import annotations

from typing import Any

import verifiers.v1 as vf
from reasoning_gym import create_dataset

__all__ = ["ReasoningSums"]

SUMS = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1, "allow_negation": False}
SYSTEM = "Give the answer as <answer>answer</answer>."


class SumData(vf.TaskData):
    entry: dict[str, Any]


class SumTask(vf.Task[SumData]):
    @vf.reward
    async def right(self, trace: vf.Trace) -> float:
        said = trace.last_reply.rpartition("<answer>")[2].partition("</answer>")[0].strip()
        return float(create_dataset("chain_sum", size=1, **SUMS).score_answer(answer=said, entry=self.data.entry))


class ReasoningSums(vf.Taskset[SumTask, vf.TasksetConfig]):
    def load(self) -> list[SumTask]:
        entries = create_dataset("chain_sum", size=576, seed=0, **SUMS)
        return [
            SumTask(SumData(idx=n, system_prompt=SYSTEM, prompt=entry["question"], entry=entry), self.config.task)
            for n, entry in enumerate(entries)
        ]
