"""One process of a run: opens the run's parts in order, then trains or evaluates."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from rlfactory_core.algo.advantages import GAE
from rlfactory_core.algo.guard import STOPPED_BY
from rlfactory_core.algo.losses import LossOptions
from rlfactory_core.algo.until import Ended
from rlfactory_core.context import RunContext
from rlfactory_core.engines.adapters import write_adapter
from rlfactory_core.engines.base import EngineRun
from rlfactory_core.engines.exports import Origin
from rlfactory_core.engines.local.decoding.padded_decoder import make_decoder
from rlfactory_core.engines.local.decoding.sampler import LocalSampler
from rlfactory_core.engines.local.model.loading import (
    checkpoint_activations,
    choose_device,
    choose_dtype,
    load_pretrained,
    make_policy,
)
from rlfactory_core.engines.local.model.lora import StartPolicy, adapter_weights, add_lora, load_adapter_weights
from rlfactory_core.engines.local.model.pack import common_prefix
from rlfactory_core.engines.local.model.policy import Policy
from rlfactory_core.engines.local.tiny.default_model import OwnModel
from rlfactory_core.engines.local.training.checkpoint import (
    BEST,
    LATEST,
    TrainerState,
    checkpoints,
    load_state,
    mark_best,
    save_checkpoint,
)
from rlfactory_core.engines.local.training.critic import Critic, Discounts
from rlfactory_core.engines.local.training.optim import Optimizer, OptimizerOptions
from rlfactory_core.engines.local.training.rollouts import Rollouts
from rlfactory_core.engines.local.training.trainer import Observer, Outcome, StepResult, Trainer
from rlfactory_core.engines.local.training.update import Learner
from rlfactory_core.engines.local.training.workers import Compute, Workers
from rlfactory_core.engines.positions import known_positions
from rlfactory_core.engines.recorder import Recorder, evaluation_passes, run_facts
from rlfactory_core.engines.resuming import newest_readable, none_yet
from rlfactory_core.errors import UsageError
from rlfactory_core.images import sees_images
from rlfactory_core.protocols import Vision
from rlfactory_core.reporting.folder import replace_link
from rlfactory_core.reporting.loggers import open_loggers
from rlfactory_core.reporting.trajectories import stored
from rlfactory_core.rollout import vision_of
from rlfactory_core.tasks.opening import OpenTasks
from rlfactory_core.tasks.room import check_prompts
from rlfactory_core.types import Group, Sample
from rlfactory_core.utils.garbage import collect_rarely

PREFIX_SAMPLES = 64  # of each task and split, whose prompts are compared to find the shared prefix


@dataclass(frozen=True, slots=True)
class Start:
    """The model with which this process starts, on the CPU; ``state`` is the checkpoint's if the run is resumed."""

    model: Any
    tokenizer: Any
    state: TrainerState | None = None
    cached: str = ""  # the folder of a task's own model, if its warm start has been cached

    @property
    def step(self) -> int:
        """The number of finished steps."""
        return self.state.step if self.state else 0


@dataclass(frozen=True, slots=True)
class LocalRun:
    """A run whose parts are all open. `opened` makes one in each process, and all processes call the same methods.

    Args:
        recorder: on rank 0 only.
    """

    run: EngineRun
    compute: Compute
    start: Start
    policy: Policy
    rollouts: Rollouts
    recorder: Recorder | None

    async def train(self) -> dict[str, Any]:
        """Returns the summary on rank 0, an empty one on the others."""
        if not self.start.step:
            await self.evaluate("before")
            if self.recorder is not None:
                self.run.folder.write_summary(self._summary())
        outcome = await self._train(self.start.step + 1, self.run.config.train.steps)
        await self.evaluate("after", measured=outcome.evaluation.groups)
        if self.recorder is not None:
            self.recorder.moved = outcome.moved
        return self._summary(outcome.step, outcome.ended)

    async def evaluate(
        self, when: str, *, intervals: bool = False, measured: Mapping[str, Sequence[Group]] = {}
    ) -> dict[str, float]:
        """Greedy, sampled and, after training, with the task's controls. Returns the results on rank 0.

        Args:
            measured: passes that were made with these weights already: prefix -> groups, see `Evaluation`.
        """
        runtime, recorder = self.rollouts.runtime, self.recorder
        if not self.rollouts.eval_samples:
            return {}
        passes = evaluation_passes(self.run, when)
        self.run.progress.stage(f"evaluate {when}" if self.rollouts.samples else "evaluate", len(passes), "round")
        for how in passes:
            groups = measured.get(how.prefix)
            if groups is None:
                share = await self.rollouts.evaluate(how)
                groups = [group for part in await self.compute.gather(share) for group in part]
            if recorder is not None:
                texts = stored(groups, runtime.chat.decode)
                found = recorder.evaluated(when, how, groups, texts, intervals=intervals)
                key = f"{how.prefix}{runtime.success}"
                self.run.progress.advance(1, **{key: found.get(key, float("nan"))})
        return recorder.results[when] if recorder is not None else {}

    def trainer(self, learner: Learner, observer: Observer) -> Trainer:
        return Trainer(
            self.run.config, self.run.advantage, self.rollouts, learner, self.compute, observer, self.run.stop
        )

    def learner(self) -> Learner:
        """The loss and a fresh optimizer, or the checkpoint's."""
        train = self.run.config.train
        reference = self._reference() if train.kl > 0 else None
        options = OptimizerOptions(
            lr=train.lr,
            muon_lr=train.muon_lr,
            weight_decay=train.weight_decay,
            max_grad_norm=train.max_grad_norm,
            explode_norm=train.explode_norm,
            warmup_steps=train.warmup_steps,
            total_steps=train.steps * train.updates_per_step,
            schedule=train.schedule,
        )
        optimizer = Optimizer(self.policy.model, options)
        if self.start.state is not None:
            optimizer.load_state_dict(self.start.state.optimizer)
        policy_loss = self.run.loss
        assert policy_loss is not None  # the engine uses registered names
        clip, truncate = (train.clip_low, train.clip_high), train.truncate_weight if train.staleness else None
        loss = LossOptions(*clip, train.kl, truncate, policy_loss, self.run.config.rollout.temperature)
        critic = self._critic(options) if train.advantage == GAE else None
        return Learner(self.policy, optimizer, self.compute.workers, loss, reference, critic)

    def _critic(self, options: OptimizerOptions) -> Critic:
        """A new one, or the checkpoint's."""
        train, seed = self.run.config.train, self.run.config.seed
        own = replace(options, lr=train.critic_lr, muon_lr=0.0)
        critic = Critic(self.policy, own, self.compute.workers, Discounts(train.gamma, train.lam), seed)
        if self.start.state is not None and self.start.state.critic:
            critic.load_state_dict(self.start.state.critic)
        return critic

    async def _train(self, first: int, last: int) -> Outcome:
        learner, progress, checkpoint = self.learner(), self.run.progress, self.run.config.checkpoint
        guard, lora = self.run.config.train.guard, self.run.config.train.lora
        keep = checkpoint.keep + (guard == "rollback")  # the one of the stop is of no use then
        origin = Origin(self.run.config.model or self.start.cached, tuple(self.rollouts.runtime.chat.stop_token_ids))

        def on_step(result: StepResult) -> None:
            assert self.recorder is not None
            texts = stored(result.groups, self.rollouts.runtime.chat.decode)
            warned = len(self.recorder.warned)
            self.recorder.step(result.step, result.groups, result.metrics, texts)
            if guard != "warn" and len(self.recorder.warned) > warned:
                self.run.stop.request(f"{STOPPED_BY}{self.recorder.warned[warned]}")

        def beside(checkpoint: Path) -> None:
            vision = vision_of(self.rollouts.runtime.chat)
            if vision is not None:
                vision.save(checkpoint)
            if lora is not None:
                weights = adapter_weights(self.policy.model).items()
                own = {name.replace(".default.", "."): tensor for name, tensor in weights}
                write_adapter(checkpoint, lora, own, origin.model)

        def save(step: int, pending: Sequence[int] = ()) -> None:
            assert self.recorder is not None
            totals = {**self.recorder.totals, "seconds": self.recorder.seconds()}
            adapters = adapter_weights(self.policy.model)
            state = TrainerState(step, learner.optimizer.state_dict(), totals, adapters, list(pending), trainer.state())
            if learner.critic is not None:
                state = replace(state, critic=learner.critic.state_dict())
            folder, tokenizer = self.run.folder.checkpoints, self.start.tokenizer
            save_checkpoint(folder, self.policy.model, tokenizer, state, keep=keep, origin=origin, beside=beside)

        def best(step: int) -> None:
            mark_best(self.run.folder.checkpoints, step, keep=keep)
            progress.say(f"step {step} has the best held-out result so far: {self.run.folder.checkpoints / BEST}")

        self.run.stop.armed = True
        progress.stage("train", last, "step")
        progress.advance(first - 1)
        trainer = self.trainer(learner, Observer(progress, on_step, save, best))
        if self.start.state is not None and self.start.state.loop:
            trainer.load(self.start.state.loop)
        pending = self.start.state.pending if self.start.state else ()
        outcome = await trainer.run(first, last, pending)
        if outcome.ended.by != "steps":
            progress.say(f"training ended: {outcome.ended.text}")
        step = outcome.step
        saved = outcome.evaluation.best or (checkpoint.every and step % checkpoint.every == 0)
        if self.recorder is not None and step >= first and not saved:
            await self.compute.run(lambda: save(step, outcome.pending))
        return outcome

    def _reference(self) -> Policy:
        """The start model, frozen."""
        if self.run.config.train.lora is not None:
            return StartPolicy(self.policy)
        if self.start.state is None:
            model = copy.deepcopy(self.policy.model)
        else:
            dtype = next(self.policy.model.parameters()).dtype
            model = _start_model(self.run, self.compute.workers, dtype).model
            model = model.to(self.policy.device)
        # Not probed again: a frozen model has no gradients to compare.
        return self.policy.of(model.requires_grad_(requires_grad=False))

    def _summary(self, steps: int | None = None, ended: Ended | None = None) -> dict[str, Any]:
        if self.recorder is None:
            return {}
        own = {"workers": self.compute.workers.size, "policy": self.policy.kind}
        return {**run_facts(self.run.config), **own, **self.recorder.summary(steps, ended)}


@asynccontextmanager
async def opened(run: EngineRun, compute: Compute, *, training: bool) -> AsyncIterator[LocalRun]:
    """Open a run's parts. What can fail because of the user's input fails here, the cheap checks first."""
    config, workers = run.config, compute.workers
    async with AsyncExitStack() as stack:
        samples = run.tasks.samples("train") if training else []
        eval_samples = run.tasks.held_out(required=not training)
        runtime = OpenTasks(run.tasks, str(run.folder.path.resolve()) if workers.size > 1 else "")
        stack.push_async_callback(runtime.close)
        await runtime.open(run.progress, RunContext(run.folder.path, run.stop.request))
        runtime.check([*samples, *eval_samples])
        start = _start(run, workers)
        runtime.use_chat(run.make_chat(start.tokenizer, images=sees_images(start.model.config)))
        checked = check_prompts(runtime, samples, eval_samples, known_positions(start.model.config))
        vision = vision_of(runtime.chat)
        policy = _policy(run, start, workers, vision)
        decoder = make_decoder(
            policy,
            slots=config.rollout.slots,
            prefix=_shared_prefix(runtime, [*checked.train, *checked.held_out]),
            stop_token_ids=runtime.chat.stop_token_ids,
            version=start.step,
        )
        sampler = LocalSampler(decoder, compute.thread, deterministic=config.rollout.deterministic)
        prompts = run.make_prompts(checked.train)
        open_sampler = await stack.enter_async_context(sampler)
        rollouts = Rollouts(config, runtime, open_sampler, workers, checked.train, checked.held_out, prompts)
        stack.callback(collect_rarely())
        recorder = None
        if workers.first:
            shown = config.model_dump(mode="json")
            names = config.loggers if training else ()
            opened_loggers = open_loggers(names, run.folder, shown, start.step or None, run.progress.say)
            loggers = stack.enter_context(closing(opened_loggers))
            earlier = start.state.totals if start.state else None
            scorers, top = run.tasks.scorers, run.tasks.top_reward
            recorder = Recorder(
                run.folder, run.progress, runtime.success, loggers, earlier, scorers.weights, scorers.opinions, top
            )
            recorder.left_out = checked.left_out
            for note in checked.notes:
                run.progress.say(note)
        yield LocalRun(run, compute, start, policy, rollouts, recorder)


def _start(run: EngineRun, workers: Workers) -> Start:
    """A new run's model, or the newest checkpoint that can be read.

    Raises:
        CheckpointError: none can be read.
        UsageError: the run is resumed and has done more steps than it should.
    """
    config = run.config
    tiny = config.model is None and config.dtype == "auto"  # bf16 would not make it faster, and would cost accuracy
    dtype = choose_dtype("float32" if tiny else config.dtype, choose_device(config.device))
    if not run.resume:
        return _start_model(run, workers, dtype)
    lora = config.train.lora is not None  # then the checkpoint's weights have the adapters merged in

    def load(checkpoint: Path) -> tuple[TrainerState, tuple[Any, Any] | None]:
        state = load_state(checkpoint)
        return state, None if lora else load_pretrained(str(checkpoint), choose_device("cpu"), dtype)

    found = checkpoints(run.folder.checkpoints)
    if not found:
        raise none_yet(run.folder.checkpoints)
    checkpoint, (state, loaded) = newest_readable(found, load, run.progress.say)
    if checkpoint != found[0] and workers.first:
        replace_link(run.folder.checkpoints / LATEST, checkpoint.name)
    start = Start(*loaded, state) if loaded else replace(_start_model(run, workers, dtype), state=state)
    if start.step > config.train.steps:
        raise UsageError(
            f"The run has done {start.step} steps, more than train.steps={config.train.steps}. "
            f"Give more, for example: --steps {2 * start.step}"
        )
    return start


def _start_model(run: EngineRun, workers: Workers, dtype: torch.dtype) -> Start:
    """The model of a new run."""
    if run.config.model is not None:
        return Start(*load_pretrained(run.config.model, choose_device("cpu"), dtype))
    own = OwnModel.of(run.config, run.tasks.only, run.fingerprints, run.make_chat)
    model, tokenizer = own.build(workers, run.progress)
    folder = own.folder(workers.size)
    return Start(model.to(dtype), tokenizer, cached=str(folder) if folder.is_dir() else "")


def _policy(run: EngineRun, start: Start, workers: Workers, vision: Vision | None) -> Policy:
    """The model on its device, with its adapters."""
    config, train = run.config, run.config.train
    model = start.model.to(choose_device(config.device))
    policy, report = make_policy(model, max_tokens=config.rollout.max_tokens, vision=vision)
    if workers.first and (config.model is not None or not report.passed):
        run.progress.say(report.line())
    if train.lora is not None:
        add_lora(policy.model, train.lora, config.seed)
        if start.state is not None:
            load_adapter_weights(policy.model, start.state.trainable)
    if train.gradient_checkpointing:
        checkpoint_activations(model)
    return policy


def _shared_prefix(runtime: OpenTasks, samples: Sequence[Sample]) -> Sequence[int] | None:
    """The ids with which all prompts begin; None: an agent's prompts are not known before it asks."""
    kinds: dict[tuple[str, str], list[Sample]] = {}
    for sample in samples:
        kinds.setdefault((sample.task, sample.split), []).append(sample)
    compared = (sample for kind in kinds.values() for sample in kind[:PREFIX_SAMPLES])
    prompts = [runtime.of(sample).prompt_ids(sample) for sample in compared]
    known = [ids for ids in prompts if ids is not None]
    if len(known) < len(prompts):
        return None
    return known[0][: common_prefix(known)] if len(known) > 1 else ()
