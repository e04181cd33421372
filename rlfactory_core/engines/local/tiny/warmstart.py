"""The short supervised training that a tiny model starts from, on the task's own demonstrations.

The loss is taken on the demonstrator's own tokens (and, by ``context_weight``, on the rest). A stage with a target ends
on a metric, not after a number of steps: copying appears suddenly, at a step that varies by seed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import groupby

import torch

from rlfactory_core.engines.local.learning.optimizer import Optimizer, OptimizerOptions
from rlfactory_core.engines.local.model.pack import Packed, pack
from rlfactory_core.engines.local.model.policy import Policy
from rlfactory_core.engines.local.workers import Workers
from rlfactory_core.protocols import ChatFormat
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.rollout import vision_of
from rlfactory_core.rollout.written import written_ids
from rlfactory_core.tiny import Demonstration, TinyModelRecipe, WarmStartStage
from rlfactory_core.types import ToolSpec, TrainSequence

PROBE_EVERY = 25  # steps
NEAR = 0.9  # of the target: a model that has come so far is used, since other weights would hardly do better
LONGER = 2  # times the steps of a stage, after which it is given up if it has missed its target
PROBE_SIZE = 64  # demonstrations


def encode(
    chat: ChatFormat, tools: Sequence[ToolSpec], demonstration: Demonstration, context_weight: float = 0.0
) -> TrainSequence:
    """With the weight 1 on the ids of the assistant's turns, and ``context_weight`` on those behind the prompt.

    Raises:
        ChatFormatError: the format cannot write the turns.
    """
    groups = [tuple(each) for _, each in groupby(demonstration, lambda message: message.role == "assistant")]
    ids = list(chat.initial_ids(groups[0], tools))
    weights = [0.0] * len(ids)
    for messages in groups[1:]:
        written = messages[0].role == "assistant"
        new = written_ids(chat, messages[0]) if written else chat.observation_ids(messages)
        ids += new
        weights += [1.0 if written else context_weight] * len(new)
    mask = tuple(int(weight > 0) for weight in weights)
    images = () if (vision := vision_of(chat)) is None else vision.images_in(demonstration)
    return TrainSequence(tuple(ids), mask, tuple(weights), (0.0,) * len(ids), images=images)


class WarmStart:
    """Runs a recipe's stages on ``policy``; every process calls `run` together.

    Args:
        chat: writes the demonstrations.
        tools: that their prompts show.
    """

    def __init__(
        self,
        policy: Policy,
        recipe: TinyModelRecipe,
        chat: ChatFormat,
        tools: Sequence[ToolSpec],
        workers: Workers,
        seed: int,
    ) -> None:
        self.policy, self.recipe, self.chat, self.tools, self.workers = policy, recipe, chat, tools, workers
        self._rng = random.Random(f"warm start {seed} {workers.rank}")
        self._seed = seed

    def run(self, progress: Progress, *, to_the_end: bool = True) -> str:
        """Returns an empty text, or what was missed: the accuracy after a stage that has not reached its target.

        A stage that ends near its target counts; it is shown what could be done about the rest.

        Args:
            to_the_end: whether the other stages follow then.
        """
        steps = sum(stage.max_steps for stage in self.recipe.stages)
        options = OptimizerOptions(self.recipe.lr, self.recipe.muon_lr, total_steps=steps)
        optimizer = Optimizer(self.policy.model, options)
        missed = ""
        for number, stage in enumerate(self.recipe.stages):
            accuracy = self._stage(stage, optimizer, progress, first=number == 0)
            if NEAR * stage.target <= accuracy < stage.target:
                progress.say(
                    f"the warm start ends at {accuracy:.2f} of {stage.target:.2f} on the probe, which is near enough. "
                    "If the training stays low, give the task more or simpler demonstrations."
                )
            elif accuracy < stage.target:
                missed = f"{accuracy:.2f} of {stage.target:.2f} on the probe after {LONGER * stage.max_steps} steps"
                if not to_the_end:
                    break
        return missed

    def _stage(self, stage: WarmStartStage, optimizer: Optimizer, progress: Progress, *, first: bool) -> float:
        """The last accuracy on the probe; 0 without a target. A stage that misses its target goes on for a while."""
        latest = 0.0
        goal = "until it copies" if stage.target else "noisy demonstrations"
        progress.stage(f"warm start: {goal}", stage.max_steps, "step")
        for step in range(1, (LONGER if stage.target else 1) * stage.max_steps + 1):
            if step == stage.max_steps + 1:
                progress.say("the warm start has not reached its target yet, and goes on")
                progress.stage("warm start: longer", stage.max_steps, "step")
            scale = min(1.0, step / self.recipe.warmup_steps) if first else 1.0
            if not stage.target:
                scale = max(0.02, 1.0 - (step - 1) / stage.max_steps)
            numbers = {"loss": self._learn(stage, optimizer, scale)}
            if stage.target and step % PROBE_EVERY == 0:
                numbers["probe"] = latest = self.accuracy()
            progress.advance(1, **numbers)
            if stage.target and numbers.get("probe", 0.0) >= stage.target:
                break
        return latest

    def _learn(self, stage: WarmStartStage, optimizer: Optimizer, scale: float) -> float:
        count = max(1, stage.batch // self.workers.size)
        demonstrations = [stage.demonstrate(self._rng) for _ in range(count)]
        packed = self._packed(demonstrations, stage.context_weight)
        weights = packed.advantages
        total = self.workers.sum([float(weights.sum())])[0]
        logits = self.policy.target_logits(packed)
        loss = (torch.nn.functional.cross_entropy(logits, packed.target_ids, reduction="none") * weights).sum() / total
        loss.backward()
        self.workers.reduce_gradients(optimizer.parameters)
        optimizer.step(scale)
        return self.workers.sum([float(loss.detach())])[0]

    def _packed(self, demonstrations: Sequence[Demonstration], context_weight: float = 0.0) -> Packed:
        sequences = [encode(self.chat, self.tools, each, context_weight) for each in demonstrations]
        return pack(sequences, self.policy.device, share_prefix=self.policy.kind == "ragged")

    @torch.no_grad()
    def accuracy(self) -> float:
        """Share of held-out clean turns that the model would write, teacher-forced and greedily, to the last token."""
        rng = random.Random(f"probe {self._seed}")
        demonstrations = self.workers.share([self.recipe.probe(rng) for _ in range(PROBE_SIZE)])
        packed = self._packed(demonstrations)
        right = self.policy.target_logits(packed).argmax(-1) == packed.target_ids
        turn = torch.cat([torch.zeros(1, dtype=torch.bool), packed.place[1:] != packed.place[:-1] + 1]).cumsum(0)
        turns = int(turn[-1]) + 1
        wrong = torch.zeros(turns).index_add_(0, turn, (~right).float().cpu())
        good, all_turns = self.workers.sum([float((wrong == 0).sum()), float(turns)])
        return good / all_turns
