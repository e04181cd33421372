"""The task's samples as verl's data set.

The training set is the run's whole schedule, one item per prompt of each step in order, so that both engines train on
the same prompts at the same steps and a resumed run goes on where it stood.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.utils.data import Dataset

from rlfactory_core.engines.verl.payload import Payload
from rlfactory_core.engines.verl.work import FIELD, Work
from rlfactory_core.evaluation import EvalPass
from rlfactory_core.rollout import derive_seed
from rlfactory_core.schedule import PromptSchedule
from rlfactory_core.task_runtime import TaskRuntime
from rlfactory_core.types import Sample

TRAIN, EVAL = "train", "eval"  # what stands where verl expects the names of files


class TaskDataset(Dataset[dict[str, Any]]):
    """verl's ``data.custom_cls``: constructed by its trainer with these arguments."""

    def __init__(self, data_files: Any, tokenizer: Any, processor: Any, config: Any, max_samples: int = -1) -> None:
        self.config, registry = Payload.from_text(str(config[FIELD])).load_plugins()
        runtime = TaskRuntime(self.config, registry)
        self.training = data_files == TRAIN
        self.samples: Sequence[Sample] = runtime.samples("train") if self.training else runtime.held_out(required=False)
        train = self.config.train
        self.schedule = PromptSchedule(len(self.samples), train.prompts_per_step, self.config.seed)
        self.passes: Sequence[EvalPass] = (EvalPass(EVAL),)  # of the evaluation that comes next

    def __len__(self) -> int:
        train = self.config.train
        return train.steps * train.prompts_per_step if self.training else len(self.passes) * len(self.samples)

    def __getitem__(self, item: int) -> dict[str, Any]:
        work = self._training_work(item) if self.training else self._evaluation_work(item)
        row = {
            "raw_prompt": [{"role": message.role, "content": message.content} for message in work.sample.messages],
            "index": item,
            "data_source": work.how.name if work.how else (work.sample.slice or self.config.plugin),
            "reward_model": {"style": "rule", "ground_truth": ""},
            FIELD: work.dumps(),
        }
        return row if work.how is None else {**row, "__rollout_n__": work.how.attempts}

    def _training_work(self, item: int) -> Work:
        step, index = divmod(item, self.config.train.prompts_per_step)
        step += 1
        sample = self.samples[self.schedule.index(item)]
        seed = derive_seed(self.config.seed, "train", step, index)
        return Work(sample, seed, f"{step}/{index}", self.config.rollout.temperature)

    def _evaluation_work(self, item: int) -> Work:
        number, index = divmod(item, len(self.samples))
        how = self.passes[number]
        seed = derive_seed(self.config.seed, how.name, index)
        return Work(self.samples[index], seed, f"{how.name}/{index}", how.temperature, how)
