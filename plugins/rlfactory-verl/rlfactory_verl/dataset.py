"""The task's samples as verl's data set.

The training set is the run's whole schedule, one item per prompt of each step in order, so that both engines train on
the same prompts at the same steps and a resumed run continues at the right prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.utils.data import Dataset

from rlfactory_core.algo import EvalPass
from rlfactory_core.types import Sample
from rlfactory_core.utils.seeds import derive_seed
from rlfactory_verl.rollout_request import FIELD, Position, RolloutRequest
from rlfactory_verl.run_payload import Payload

TRAIN, EVAL = "train", "eval"  # given to verl in place of file names


class TaskDataset(Dataset[dict[str, Any]]):
    """verl's ``data.custom_cls``: constructed by its trainer with these arguments."""

    def __init__(self, data_files: Any, tokenizer: Any, processor: Any, config: Any, max_samples: int = -1) -> None:
        payload = Payload.from_text(str(config[FIELD]))
        run = payload.run()
        self.config, tasks = run.config, run.tasks
        self.training = data_files == TRAIN
        samples = tasks.samples("train") if self.training else tasks.held_out(required=False)
        left_out = frozenset(payload.left_out.get(TRAIN if self.training else EVAL, ()))
        self.samples: Sequence[Sample] = [sample for sample in samples if sample.id not in left_out]
        if self.training:
            self.prompts = run.stages[0].make_prompts(self.samples)
        self._step: tuple[int, list[int]] = (0, [])  # a step and its samples
        self.passes: Sequence[EvalPass] = (EvalPass(EVAL),)  # of the next evaluation

    def __len__(self) -> int:
        train = self.config.train
        return train.steps * train.prompts_per_step if self.training else len(self.passes) * len(self.samples)

    def __getitem__(self, item: int) -> dict[str, Any]:
        request = self._training_request(item) if self.training else self._evaluation_request(item)
        row = {
            "raw_prompt": [{"role": message.role, "content": message.content} for message in request.sample.messages],
            "index": item,
            "data_source": request.how.name if request.how else (*request.sample.slices, self.config.plugin)[0],
            "reward_model": {"style": "rule", "ground_truth": ""},
            FIELD: request.dumps(),
        }
        return row if request.how is None else {**row, "__rollout_n__": request.how.attempts}

    def _training_request(self, item: int) -> RolloutRequest:
        step, index = divmod(item, self.config.train.prompts_per_step)
        step += 1
        if self._step[0] != step:
            self._step = step, self.prompts.step(step)
        sample = self.samples[self._step[1][index]]
        seed = derive_seed(self.config.seed, "train", step, index)
        return RolloutRequest(sample, seed, Position(TRAIN, step, index), self.config.rollout.temperature)

    def _evaluation_request(self, item: int) -> RolloutRequest:
        number, index = divmod(item, len(self.samples))
        how = self.passes[number]
        seed = derive_seed(self.config.seed, how.name, index)
        return RolloutRequest(self.samples[index], seed, Position(how.name, 0, index), how.temperature, how)
