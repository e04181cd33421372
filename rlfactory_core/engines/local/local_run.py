"""One process of one run: its parts, put together in order, and what is done with them."""

from __future__ import annotations

import asyncio
import copy
import gc
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import AsyncExitStack
from typing import Any

from rlfactory_core.engines.local.checkpoint import TrainerState, latest_checkpoint, load_state, save_checkpoint
from rlfactory_core.engines.local.evaluate import evaluate
from rlfactory_core.engines.local.loading import choose_device, choose_dtype, load_pretrained, make_decoder, make_policy
from rlfactory_core.engines.local.lora import StartPolicy, adapter_weights, add_lora, load_adapter_weights
from rlfactory_core.engines.local.loss import LossOptions
from rlfactory_core.engines.local.optim import Optimizer, OptimizerOptions
from rlfactory_core.engines.local.own_model import OwnModel
from rlfactory_core.engines.local.pack import common_prefix
from rlfactory_core.engines.local.policy import Policy
from rlfactory_core.engines.local.sampler import LocalSampler
from rlfactory_core.engines.local.trainer import Observer, StepResult, Trainer
from rlfactory_core.engines.local.update import Learner
from rlfactory_core.engines.local.workers import Workers
from rlfactory_core.errors import UsageError
from rlfactory_core.evaluation import EvalPass, eval_passes, summarise
from rlfactory_core.protocols import EngineRun
from rlfactory_core.reporting.loggers import MetricsLogger, open_loggers
from rlfactory_core.reporting.metrics import all_masked
from rlfactory_core.run_context import RunContext
from rlfactory_core.task_runtime import TaskRuntime
from rlfactory_core.types import Group, Sample

PREFIX_SAMPLES = 64  # prompts that are compared to find the shared prefix


class LocalRun:
    """``await open()``, then `train` or `evaluate`, then ``await close()``; all processes do the same."""

    def __init__(self, run: EngineRun, workers: Workers, compute: Executor) -> None:
        self.run, self.config, self.workers, self.compute = run, run.config, workers, compute
        self.progress = run.progress
        group = str(run.folder.path.resolve()) if run.config.train.workers > 1 else ""
        self.runtime = TaskRuntime(run.config, run.registry, group=group)
        self.state: TrainerState | None = None
        self.totals: Counter[str] = Counter()
        self.started = time.perf_counter()
        self._sampling = AsyncExitStack()

    async def open(self, *, training: bool) -> None:
        """Everything that can fail for a reason of the user's fails here, the cheap first."""
        self.samples = self.runtime.samples("train") if training else []
        self.eval_samples = self.runtime.held_out(required=not training)
        await self.runtime.open(self.progress, RunContext(self.run.folder.path, self.run.stop.request))
        model = self._load_model()
        self.runtime.use_tokenizer(self.tokenizer)
        device, train = choose_device(self.config.device), self.config.train
        self.policy, report = make_policy(model.to(device), max_tokens=self.config.rollout.max_tokens)
        if self.workers.first and (self.config.model is not None or not report.passed):
            self.progress.say(report.line())
        if train.lora is not None:
            add_lora(self.policy.model, train.lora, self.config.seed)
            if self.state is not None:
                load_adapter_weights(self.policy.model, self.state.trainable)
        if train.gradient_checkpointing:
            # Newer releases of transformers renamed it.
            enable = getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)
            enable({"use_reentrant": False})
        decoder = make_decoder(
            self.policy,
            slots=self.config.rollout.slots,
            prefix=self._shared_prefix(),
            stop_token_ids=self.runtime.chat.stop_token_ids,
            version=self.state.step if self.state else 0,
        )
        deterministic, slots = self.config.rollout.deterministic, self.config.rollout.slots
        sampler = LocalSampler(decoder, self.compute, deterministic=deterministic, slots=slots)
        self.sampler = await self._sampling.enter_async_context(sampler)
        # Thousands of calls in flight set off full collections, which would go through all of torch each time.
        gc.collect()
        gc.freeze()
        self._sampling.callback(gc.unfreeze)

    def _load_model(self) -> Any:
        """The run's start model, or its latest checkpoint on a resume; sets ``tokenizer`` and ``state``."""
        tiny = self.config.model is None and self.config.dtype == "auto"  # too small to gain by bf16, and it would lose
        dtype = choose_dtype("float32" if tiny else self.config.dtype, choose_device(self.config.device))
        if self.run.resume:
            checkpoint = latest_checkpoint(self.run.folder.checkpoints)
            self.state = load_state(checkpoint)
            if self.state.step > self.config.train.steps:
                raise UsageError(
                    f"The run has done {self.state.step} steps, more than train.steps={self.config.train.steps}. "
                    f"Give more, for example: --steps {2 * self.state.step}"
                )
            if self.config.train.lora is not None:  # the checkpoint's weights have the adapters merged in
                return self._start_model(dtype)
            model, self.tokenizer = load_pretrained(str(checkpoint), choose_device("cpu"), dtype)
            return model
        return self._start_model(dtype)

    def _start_model(self, dtype: Any) -> Any:
        if self.config.model is not None:
            model, self.tokenizer = load_pretrained(self.config.model, choose_device("cpu"), dtype)
            return model
        own = OwnModel.of(self.runtime.task, self.config, self.run.registry)
        built = own.build(self.workers, self.progress)
        self.tokenizer = built.tokenizer
        if built.cached:
            self.progress.say("the warm-started model is in the cache")
        return built.model.to(dtype)

    def _shared_prefix(self) -> Sequence[int]:
        samples = [*self.samples[:PREFIX_SAMPLES], *self.eval_samples[:PREFIX_SAMPLES]]
        specs = self.runtime.manager.specs
        prompts = [self.runtime.chat.initial_ids(sample.messages, specs) for sample in samples]
        return prompts[0][: common_prefix(prompts)] if len(prompts) > 1 else ()

    async def close(self) -> None:
        await self._sampling.aclose()
        await self.runtime.close()

    # --- training -------------------------------------------------------------------------------------------------

    async def train(self) -> dict[str, Any]:
        """Returns the summary on rank 0, an empty one elsewhere."""
        first = 1
        if self.state is not None:
            first, self.totals = self.state.step + 1, Counter(self.state.totals)
            before = self.run.folder.read_summary().get("eval", {}).get("before", {}) if self.workers.first else {}
            if self.workers.first:
                self.run.folder.cut_after(self.state.step)
        else:
            before = await self.evaluate_all("before")
            if self.workers.first:
                self.run.folder.write_summary(self._summary(0, before, {}))
        learner = self._learner()
        last = self.config.train.steps
        logger = self._open_logger(first - 1)
        try:
            await self._loop(learner, logger, first, last)
        finally:
            if logger is not None:
                logger.close()
        after = await self.evaluate_all("after")
        return self._summary(last, before, after) if self.workers.first else {}

    async def _loop(self, learner: Learner, logger: MetricsLogger | None, first: int, last: int) -> None:
        def on_step(result: StepResult) -> None:
            assert logger is not None
            self._count(result)
            logger.log(result.step, result.metrics)
            trajectories = (t for group in result.groups for t in group.trajectories)
            self.run.folder.write_trajectories(result.step, trajectories, self.runtime.chat.decode)
            self.progress.advance(1, **_shown(result.metrics, self.runtime.success))
            lost = all_masked(result.groups)
            if lost:
                self.progress.say(f"warning: step {result.step}: {lost}")

        def save(step: int) -> None:
            trainable = adapter_weights(self.policy.model)
            totals = {**self.totals, "seconds": self._seconds()}
            state = TrainerState(step, learner.optimizer.state_dict(), totals, trainable)
            keep = self.config.checkpoint.keep
            save_checkpoint(self.run.folder.checkpoints, self.policy.model, self.tokenizer, state, keep=keep)

        self.run.stop.armed = True
        observer = Observer(self.progress, on_step, save)
        self.progress.stage("train", last, "step")
        self.progress.advance(first - 1)
        trainer = Trainer(
            self.config,
            self.runtime,
            self.sampler,
            learner,
            self.workers,
            self.compute,
            observer,
            self.run.stop,
            self.samples,
            self.eval_samples,
        )
        await trainer.run(first, last)
        every = self.config.checkpoint.every
        if self.workers.first and last >= first and (not every or last % every):
            await trainer.on_compute(lambda: save(last))

    def _learner(self) -> Learner:
        train = self.config.train
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
        if self.state is not None:
            optimizer.load_state_dict(self.state.optimizer)
        truncate = train.truncate_weight if train.staleness else None
        loss = LossOptions(train.clip_low, train.clip_high, train.kl, truncate)
        temperature = self.config.rollout.temperature
        return Learner(self.policy, optimizer, self.workers, loss, reference=reference, temperature=temperature)

    def _reference(self) -> Policy:
        """The start model, frozen."""
        if self.config.train.lora is not None:
            return StartPolicy(self.policy)
        if self.state is None:
            model = copy.deepcopy(self.policy.model)
        else:
            model = self._start_model(next(self.policy.model.parameters()).dtype).to(self.policy.device)
        alike: Any = type(self.policy)  # not probed again: a frozen model has no gradients to compare
        reference: Policy = alike(model.requires_grad_(requires_grad=False))
        return reference

    def _open_logger(self, done: int) -> MetricsLogger | None:
        if not self.workers.first:
            return None
        config = self.config.model_dump(mode="json")
        return open_loggers(self.config.loggers, self.run.folder, config, resume_step=done or None)

    def _count(self, result: StepResult) -> None:
        trajectories = [t for group in result.groups for t in group.trajectories]
        self.totals["sampled_tokens"] += sum(t.num_sampled for t in trajectories)
        self.totals["trained_tokens"] += int(result.metrics["trained_tokens"])
        self.totals["train_s"] += result.metrics["step_s"]  # type: ignore[assignment]
        for trajectory in trajectories:
            for fault in trajectory.faults:
                self.totals[f"faults/{fault.kind.value}"] += 1

    def _seconds(self) -> float:
        """Since the start of the run, without the time between a stop and a resume."""
        return self.totals["seconds"] + time.perf_counter() - self.started

    def _summary(self, steps: int, before: dict[str, float], after: dict[str, float]) -> dict[str, Any]:
        faults = {name.removeprefix("faults/"): n for name, n in self.totals.items() if name.startswith("faults/")}
        return {
            "plugin": self.config.plugin,
            "engine": self.config.engine,
            "model": self.config.model or "the plugin's own tiny model",
            "seed": self.config.seed,
            "steps": steps,
            "seconds": round(self._seconds(), 3),
            "train_seconds": round(self.totals["train_s"], 3),
            "workers": self.workers.size,
            "policy": self.policy.kind,
            "sampled_tokens": self.totals["sampled_tokens"],
            "trained_tokens": self.totals["trained_tokens"],
            "faults": faults,
            "success": self.runtime.success,
            "eval": {"before": before, "after": after},
        }

    # --- evaluation -----------------------------------------------------------------------------------------------

    async def evaluate(self) -> dict[str, Any]:
        """Returns the flat results with confidence intervals on rank 0."""
        return await self.evaluate_all("after", intervals=True)

    async def evaluate_all(self, when: str, *, intervals: bool = False) -> dict[str, float]:
        """Greedy, sampled and, afterwards, with the task's controls; the flat map on rank 0, an empty one elsewhere."""
        if not self.eval_samples:
            return {}
        attempts = self.config.eval.attempts if self.config.eval.sampled else 0
        controls = self.runtime.task.controls() if when == "after" else ()
        passes = eval_passes(when, attempts=attempts, controls=controls)
        self.progress.stage(f"evaluate {when}" if self.samples else "evaluate", len(passes), "round")
        results: dict[str, float] = {}
        success = self.runtime.success
        for how in passes:
            groups = await self._evaluate_pass(self.eval_samples, how)
            if self.workers.first:
                flat = summarise(groups, success=success).flat(how.prefix, intervals=intervals)
                results |= flat
                trajectories = (t for group in groups for t in group.trajectories)
                self.run.folder.write_trajectories(how.name, trajectories, self.runtime.chat.decode)
                key = f"{how.prefix}{success}"
                self.progress.advance(1, **{key: flat.get(key, float("nan"))})
        return results

    async def _evaluate_pass(self, samples: Sequence[Sample], how: EvalPass) -> list[Group]:
        """All processes' groups on rank 0."""
        share = await evaluate(samples, how, self.runtime, self.sampler, self.workers, self.config.seed)
        loop = asyncio.get_running_loop()
        gathered = await loop.run_in_executor(self.compute, lambda: self.workers.gather(share))
        return [group for part in gathered for group in part]


def _shown(metrics: dict[str, float], success: str) -> dict[str, float]:
    """What the progress display shows of a step."""
    names = ("reward", success, f"eval/{success}", "sampled_tokens_s")
    return {name: metrics[name] for name in names if name in metrics}
