"""The short supervised training that a tiny model starts from, on the task's own demonstrations.

The loss is taken on the demonstrator's own tokens (and, by ``context_weight``, on the rest). A stage with a target ends
on a metric, not after a number of steps: copying appears suddenly, at a step that varies by seed.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from itertools import groupby

import torch

from rlfactory_core.engines.local.learning.optimizer import Optimizer, OptimizerOptions
from rlfactory_core.engines.local.model.pack import Packed, pack
from rlfactory_core.engines.local.model.policy import Policy
from rlfactory_core.engines.local.workers import Workers
from rlfactory_core.errors import ChatFormatError
from rlfactory_core.plugins.attributes import optional_attributes
from rlfactory_core.protocols import ChatFormat, ChatFormatTraits
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.tiny import Demonstration, TinyModelRecipe, WarmStartStage
from rlfactory_core.types import Message, ToolSpec, TrainSequence

PROBE_EVERY = 25  # steps
NEAR = 0.9  # of the target: a model that has come so far is used, since other weights would hardly do better
LONGER = 2  # times the steps of a stage, after which it is given up if it has missed its target
PROBE_SIZE = 64  # demonstrations

_EMPTY_BLOCK = re.compile(r"^<think>\s*</think>\s*")


class Encoder:
    """Demonstrations as training sequences: context tokens have mask 0.

    Args:
        raw: an assistant's content is what it samples, stop token aside; else the format writes it, as it does calls.
    """

    def __init__(self, chat: ChatFormat, tools: Sequence[ToolSpec], *, raw: bool = True) -> None:
        self._chat, self._tools, self._raw = chat, tuple(tools), raw

    def encode(self, demonstration: Demonstration, context_weight: float = 0.0) -> TrainSequence:
        """Advantages hold the loss weights: 1 on own tokens, ``context_weight`` elsewhere (then mask 1 too)."""
        (_, prompt), *turns = (
            (sampled, tuple(messages)) for sampled, messages in groupby(demonstration, lambda m: m.role == "assistant")
        )
        ids = list(self._chat.initial_ids(prompt, self._tools))
        own = [0] * len(ids)
        system = len(ids)
        for sampled, messages in turns:
            new = self._turn_ids(messages[0]) if sampled else self._chat.observation_ids(messages)
            ids += new
            own += [int(sampled)] * len(new)
        weights = [1.0 if mine else context_weight for mine in own]
        mask = own if context_weight == 0 else [0] * system + [1] * (len(ids) - system)
        return TrainSequence(tuple(ids), tuple(mask), tuple(weights), tuple(0.0 for _ in ids))

    def _turn_ids(self, message: Message) -> tuple[int, ...]:
        if self._raw and not message.tool_calls and not message.reasoning:
            return (*self._chat.encode(message.content), self._chat.stop_token_ids[0])
        write = optional_attributes(self._chat, ChatFormatTraits, f"The chat format '{self._chat.name}'").written
        if write is None:
            raise ChatFormatError(
                f"Chat format '{self._chat.name}' cannot write demonstrations: it needs a method "
                "written(message) -> str, the text of a turn with its stop token."
            )
        text = write(message)
        # A block without a thought says nothing, and a model that has not learnt to think need not open one.
        return self._chat.encode(text if message.reasoning else _EMPTY_BLOCK.sub("", text))


class WarmStart:
    """Runs a recipe's stages on ``policy``; every process calls `run` together."""

    def __init__(self, policy: Policy, recipe: TinyModelRecipe, encoder: Encoder, workers: Workers, seed: int) -> None:
        self.policy, self.recipe, self.encoder, self.workers = policy, recipe, encoder, workers
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
        packed = self._packed([self.encoder.encode(d, stage.context_weight) for d in demonstrations])
        weights = packed.advantages
        total = self.workers.sum([float(weights.sum())])[0]
        logits = self.policy.target_logits(packed)
        loss = (torch.nn.functional.cross_entropy(logits, packed.target_ids, reduction="none") * weights).sum() / total
        loss.backward()
        self.workers.reduce_gradients(optimizer.parameters)
        optimizer.step(scale)
        return self.workers.sum([float(loss.detach())])[0]

    def _packed(self, sequences: Sequence[TrainSequence]) -> Packed:
        return pack(sequences, self.policy.device, share_prefix=self.policy.kind == "ragged")

    @torch.no_grad()
    def accuracy(self) -> float:
        """Share of held-out clean turns that the model would write, teacher-forced and greedily, to the last token."""
        rng = random.Random(f"probe {self._seed}")
        demonstrations = self.workers.share([self.recipe.probe(rng) for _ in range(PROBE_SIZE)])
        packed = self._packed([self.encoder.encode(d) for d in demonstrations])
        right = self.policy.target_logits(packed).argmax(-1) == packed.target_ids
        turn = torch.cat([torch.zeros(1, dtype=torch.bool), packed.place[1:] != packed.place[:-1] + 1]).cumsum(0)
        turns = int(turn[-1]) + 1
        wrong = torch.zeros(turns).index_add_(0, turn, (~right).float().cpu())
        good, all_turns = self.workers.sum([float((wrong == 0).sum()), float(turns)])
        return good / all_turns
