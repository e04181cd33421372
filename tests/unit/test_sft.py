"""Supervised training: loss and gradients are those of TRL's ``SFTTrainer`` on the same ids and masks."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import make_model

from rlfactory_core.algo.losses.nll import nll
from rlfactory_core.algo.settings import TrainConfig
from rlfactory_core.algo.stages import with_method
from rlfactory_core.engines.base import EngineStart
from rlfactory_core.engines.local.learning.learner import OptimizerStep, make_learner
from rlfactory_core.engines.local.model.policy import RaggedPolicy
from rlfactory_core.engines.local.workers import Workers
from rlfactory_core.engines.settings import EngineSettings
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.training.methods import Imitation
from rlfactory_core.types import Group, Message, Sample, StopReason, Trajectory, Turn

Gradients = dict[str, torch.Tensor]


def turn(context: tuple[int, ...], written: tuple[int, ...], row: int = 0) -> Turn:
    return Turn(context, written, (0.0,) * len(written), Message("assistant", ""), row=row, fork="x" if row else "")


def shown(number: int, *turns: Turn) -> Group:
    sample = Sample(str(number), "?")
    return Group(sample, (Trajectory(sample, 0, turns, StopReason.FINAL_ANSWER),))


DEMONSTRATIONS = [
    shown(0, turn((5, 6, 7), (20, 21, 22)), turn((8, 9), (30, 31))),
    shown(1, turn((5, 6, 7), (20, 44, 22, 23)), turn((8, 9, 10, 11), (50,)), turn((12,), (60, 61))),
    shown(2, turn((5, 6, 90), (20, 44))),
    shown(3, turn((5, 6, 7), (20, 21)), turn((7, 8), (30, 31, 32), row=1)),
]


def no_tiny_model() -> Any:
    raise AssertionError("the model is there")


def ours(model: Any, groups: list[Group]) -> tuple[OptimizerStep, Gradients]:
    train = with_method(TrainConfig(method="sft"), ())
    config = EngineSettings(plugin="none", train=train)
    learner = make_learner(
        RaggedPolicy(model), EngineStart(config, Progress(), no_tiny_model, loss=nll), Workers(), None, None
    )
    found: Gradients = {}

    def keep() -> tuple[float, bool]:
        found.update({name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None})
        return 0.0, True

    learner.optimizer.step = keep  # type: ignore[method-assign,assignment]
    (batch,) = Imitation(train, lambda _: True, 0, seed=0).batches(groups, 1)
    return learner.step(learner.pack(batch)), found


def trls(model: Any, groups: list[Group], folder: Path) -> tuple[float, Gradients]:
    pytest.importorskip("trl", reason="compares with TRL")
    from datasets import Dataset
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast
    from trl import SFTConfig, SFTTrainer

    words = Tokenizer(models.WordLevel({f"w{number}": number for number in range(300)}, unk_token="w1"))
    rows = [row for group in groups for trajectory in group.trajectories for row in trajectory.rows]
    labels = [[token if own else -100 for token, own in zip(row.ids, row.loss_mask, strict=True)] for row in rows]
    args = SFTConfig(
        str(folder), per_device_train_batch_size=len(rows), max_length=None, use_cpu=True, bf16=False, report_to="none",
        gradient_checkpointing=False, disable_tqdm=True,
    )  # fmt: skip
    trainer = SFTTrainer(
        model,
        args,
        train_dataset=Dataset.from_list(
            [{"input_ids": list(row.ids), "labels": label} for row, label in zip(rows, labels, strict=True)]
        ),
        processing_class=PreTrainedTokenizerFast(tokenizer_object=words, pad_token="w0", eos_token="w2"),
    )
    (batch,) = trainer.get_train_dataloader()
    loss = trainer.compute_loss(trainer.model.train(), batch)
    loss.backward()
    return float(loss.detach()), {name: each.grad for name, each in model.named_parameters() if each.grad is not None}


@pytest.mark.slow
def test_it_is_trls(tmp_path: Path) -> None:
    model = make_model("llama")
    step, own = ours(deepcopy(model), DEMONSTRATIONS)
    loss, theirs = trls(deepcopy(model), DEMONSTRATIONS, tmp_path)
    assert step.tokens == 19
    assert step.sums["nll"] / step.tokens == pytest.approx(loss, abs=1e-5)
    assert own.keys() == theirs.keys()
    assert max(float((own[name] - theirs[name]).abs().max()) for name in own) < 1e-5
    assert max(float(each.abs().max()) for each in own.values()) > 1e-2


def test_nothing_is_compared_with_a_policy_that_sampled() -> None:
    step, _ = ours(make_model("llama"), DEMONSTRATIONS)
    assert step.sums.keys() == {"nll", "loss", "kl", "entropy"}
    assert step.sums["nll"] == pytest.approx(step.sums["loss"])


def test_rejection_sampling_has_the_gradient_of_supervised_training_on_the_winners() -> None:
    winner, loser = DEMONSTRATIONS[0].trajectories[0], DEMONSTRATIONS[1].trajectories[0]
    group = Group(winner.sample, (loser, replace(winner, attempt=1), loser))
    train = with_method(TrainConfig(method="rft", updates_per_step=1), {"updates_per_step"})
    (chosen,) = Imitation(train, lambda each: each.attempt == 1, 4, seed=0).batches([group], 1)
    supervised = with_method(TrainConfig(method="sft"), ())
    (demonstrated,) = Imitation(supervised, lambda _: True, 0, seed=0).batches([DEMONSTRATIONS[0]], 1)
    assert chosen == demonstrated
