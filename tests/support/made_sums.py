"""A task set of verifiers that is made here: sums, and faults that its configuration asks for."""

from __future__ import annotations

import verifiers.v1 as vf

__all__ = ["Sums"]


class SumData(vf.TaskData):
    answer: str
    fault: str = ""


class SumTask(vf.Task[SumData]):
    async def setup(self, trace: vf.Trace, runtime: vf.Runtime) -> None:
        if self.data.fault == "setup":
            raise KeyError("board")

    @vf.reward
    async def right(self, trace: vf.Trace) -> float:
        if self.data.fault == "reward":
            raise ConnectionRefusedError("the judge is down")
        return float(trace.last_reply.strip() == self.data.answer)

    @vf.reward(weight=0.1)
    async def brief(self, trace: vf.Trace) -> float:
        return 1.0 / max(1, len(trace.last_reply))


class SumsConfig(vf.TasksetConfig):
    question: str = "What is {0} + {0}?"
    fault: str = ""


class Sums(vf.Taskset[SumTask, SumsConfig]):
    def load(self) -> list[SumTask]:
        config = self.config
        return [
            SumTask(
                SumData(idx=n, prompt=config.question.format(n), answer=str(2 * n), fault=config.fault), config.task
            )
            for n in range(12)
        ]
