"""The local engine: a model in this process, and for a small one on the CPU also in further processes like it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from rlfactory_core.algo.advantages import GAE
from rlfactory_core.algo.settings import TrainConfig
from rlfactory_core.engines.base import (
    Checkpoint,
    Engine,
    EngineStart,
    OpenModel,
    Settings,
)
from rlfactory_core.engines.exports import Origin, write_adapter
from rlfactory_core.engines.local.decoding.padded_decoder import make_decoder
from rlfactory_core.engines.local.decoding.sampler import LocalSampler
from rlfactory_core.engines.local.learning.learner import Learner, make_learner
from rlfactory_core.engines.local.learning.optimizer import adamw_of_8_bits
from rlfactory_core.engines.local.memory import memory
from rlfactory_core.engines.local.model.four_bits import bitsandbytes, quantize
from rlfactory_core.engines.local.model.half import compute_in_bfloat16, computes_in_bfloat16
from rlfactory_core.engines.local.model.loading import (
    checkpoint_activations,
    choose_device,
    choose_dtype,
    chooses_bfloat16_products,
    load_pretrained,
    load_tokenizer,
    make_policy,
    quiet_transformers,
    write_model,
)
from rlfactory_core.engines.local.model.lora import (
    EarlierPolicy,
    StartPolicy,
    adapter_start,
    adapter_weights,
    add_lora,
    load_adapter_weights,
)
from rlfactory_core.engines.local.model.onednn import keep_few_kernels
from rlfactory_core.engines.local.model.pack import common_prefix
from rlfactory_core.engines.local.model.policy import Policy
from rlfactory_core.engines.local.processes import worker_processes
from rlfactory_core.engines.local.teacher import LocalTeacher, check_vocabulary, load_teacher
from rlfactory_core.engines.local.tiny.building import build
from rlfactory_core.engines.local.tiny.folders import MOST_PROCESSES
from rlfactory_core.engines.local.workers import Compute, Workers
from rlfactory_core.engines.model_config import known_positions
from rlfactory_core.engines.settings import EngineSettings
from rlfactory_core.errors import CheckpointError, ConfigError
from rlfactory_core.images import sees_images
from rlfactory_core.protocols import ChatFormat
from rlfactory_core.rollout import vision_of
from rlfactory_core.types import TrainBatch, TrainSequence
from rlfactory_core.utils.cpu import compute_threads, usable_cores
from rlfactory_core.utils.memory import return_memory


class LocalEngine(Engine):
    """A causal language model of transformers, on this machine."""

    memory = staticmethod(memory)
    compares_likely = True

    def __init__(self) -> None:
        self._workers = Workers()
        self._stack = AsyncExitStack()
        self._learner: Learner | None = None  # from the first use on
        self._state: Mapping[str, Any] | None = None  # of the optimizer and the like, in a run that is resumed
        self._reference: Mapping[str, Any] | None = None  # the KL term's weights, where it has a copy

    def prepare(self, config: Settings) -> Settings:
        device, train = choose_device(config.device), config.train
        if config.rollout.deterministic and train.staleness:
            raise ConfigError(
                "rollout.deterministic=true needs train.staleness=0: rollouts that overlap with updates depend on time."
            )
        if train.advantage == GAE:
            _check_critic(train)
        if train.optimizer_bits == 8:
            adamw_of_8_bits()
        if train.lora is not None and train.lora.base_bits:
            bitsandbytes("functional", f"train.lora.base_bits={train.lora.base_bits}")
        workers = train.workers
        if not workers and device.type != "cpu":
            workers = 1
        elif not workers and config.model is None:  # that of a pretrained model depends on memory: it is chosen later
            # Below some 20 M parameters a second thread slows a process down, and a second process does not.
            workers = min(MOST_PROCESSES, usable_cores(), train.prompts_per_step)
        if workers > 1 and device.type != "cpu":
            raise ConfigError(f"train.workers={workers}: only the CPU can use several processes; on {device} use 1.")
        if train.prompts_per_step < workers:
            raise ConfigError(
                f"train.prompts_per_step={train.prompts_per_step} is less than train.workers={workers}: every "
                "process needs a prompt. Raise the one or lower the other."
            )
        return config.model_copy(update={"device": str(device), "train": train.model_copy(update={"workers": workers})})

    @contextmanager
    def joined(self, config: EngineSettings, program: Callable[[Engine], None]) -> Iterator[None]:
        with worker_processes(max(1, config.train.workers), partial(_among, program)) as workers:
            self._workers = workers
            yield

    def open(self, start: EngineStart) -> OpenModel:
        config, workers = start.config, self._workers
        self._start = start
        self._start_folder = config.model or ""  # or a hub id; empty if the start model is not kept anywhere
        threads = 1 if workers.size > 1 or config.model is None else compute_threads()
        thread = ThreadPoolExecutor(1, "rlfactory-compute", initializer=torch.set_num_threads, initargs=(threads,))
        # After a failure the thread may hang in a collective until the other processes end: it is not waited for.
        self._stack.callback(thread.shutdown, wait=False, cancel_futures=True)
        self._stack.enter_context(quiet_transformers())
        self.processes = self._compute = Compute(workers, thread)
        torch.set_num_threads(threads)
        if config.model is not None:
            keep_few_kernels()
        tiny = config.model is None and config.dtype == "auto"  # bf16 would not make it faster, and would cost accuracy
        self._dtype = choose_dtype("float32" if tiny else config.dtype, choose_device(config.device))
        # With adapters, a checkpoint's weights have them merged in.
        resumed = start.checkpoint if config.train.lora is None else None
        if resumed is not None:
            self._model, self._tokenizer = load_pretrained(str(resumed.folder), choose_device("cpu"), self._dtype)
        else:
            self._model, self._tokenizer = self._start_model()
        facts = self._model.config
        return OpenModel(self._tokenizer, known_positions(facts), sees_images(facts))

    def _start_model(self) -> tuple[Any, Any]:
        """The model of a new run, and its tokenizer, on the CPU."""
        if self._start.config.model is not None:
            return load_pretrained(self._start.config.model, choose_device("cpu"), self._dtype)
        tiny = self._start.make_tiny()
        model, tokenizer = build(tiny, self._workers, self._start.progress)
        folder = tiny.folder(self._workers.size)
        self._start_folder = str(folder) if folder.is_dir() else ""
        return model.to(self._dtype), tokenizer

    def load(self, checkpoint: Checkpoint) -> Mapping[str, Any]:
        try:
            state: dict[str, Any] = torch.load(checkpoint.state, map_location="cpu", weights_only=True)
            self._state = {name: state.pop(name) for name in ("optimizer", "trainable", "critic")}
            self._reference = state.pop("reference", None)
        except Exception as error:  # a damaged pickle can raise any error
            raise CheckpointError(f"The trainer's state in {checkpoint.folder} cannot be read: {error}") from error
        return state

    async def sampler(self, chat: ChatFormat, prompts: Sequence[tuple[int, ...]] | None, version: int) -> LocalSampler:
        config, train = self._start.config, self._start.config.train
        self._vision = vision_of(chat)
        self._stop_token_ids = tuple(chat.stop_token_ids)
        parameters, device = self._model.num_parameters(), choose_device(config.device)
        if train.lora is not None and train.lora.base_bits:
            quantize(self._model, device)
            return_memory()
        model = self._model.to(device)
        self._policy, report = make_policy(model, max_tokens=config.rollout.max_tokens, vision=self._vision)
        if self.processes.first and (config.model is not None or not report.passed):
            self._start.progress.say(report.line())
        if train.lora is not None:
            add_lora(model, train.lora, config.seed)
            if self._state is not None:
                load_adapter_weights(model, self._state["trainable"])
            elif train.lora.adapter:
                load_adapter_weights(model, adapter_start(train.lora.adapter))
        if flag := chooses_bfloat16_products(config, parameters):
            compute_in_bfloat16(model)
            if self.processes.first:
                self._start.progress.say(
                    f"weights, gradients and optimizer in float32, products in bfloat16 ({flag}); dtype=float32 for all"
                )
        if train.gradient_checkpointing:
            checkpoint_activations(model)
        prefix: Sequence[int] | None = None if prompts is None else ()
        if prompts and len(prompts) > 1:
            prefix = prompts[0][: common_prefix(prompts)]
        deterministic = config.rollout.deterministic
        self._decoder = make_decoder(
            self._policy,
            slots=config.rollout.slots,
            prefix=prefix,
            stop_token_ids=self._stop_token_ids,
            version=version,
            replaceable=not deterministic,
        )
        sampler = LocalSampler(self._decoder, self._compute.thread, deterministic=deterministic)
        self._sampler = await self._stack.enter_async_context(sampler)
        self._idle_s = 0.0  # of the sampler, until the last update
        return self._sampler

    def stage(self, start: EngineStart, *, fresh: bool) -> None:
        self._start = replace(start, checkpoint=self._start.checkpoint)
        if fresh:
            self._learner = self._state = self._reference = None
        elif start.config.train.kl > 0:
            self._check_reference()

    @property
    def facts(self) -> Mapping[str, Any]:
        return {"policy": self._policy.kind}

    def expect(self, sessions: Iterable[str]) -> None:
        if self._start.config.rollout.deterministic:
            self._sampler.expect(sessions)

    async def update(self, batches: Sequence[TrainBatch]) -> Mapping[str, float]:
        idle, self._idle_s = self._sampler.idle_s - self._idle_s, self._sampler.idle_s
        version = self._decoder.version + 1
        # In one call with the last optimizer step, so that no token is sampled in between.
        changed = partial(self._decoder.weights_changed, version)
        metrics = await self._learning().update(batches, self._compute, changed)
        if self._start.config.model is not None and self._policy.device.type == "cpu":
            await self._compute.run(return_memory)
        return {**metrics, "sampler_idle_s": idle}

    async def score(self, sequences: Sequence[TrainSequence]) -> Sequence[Sequence[float]]:
        return await self._compute.run(lambda: self._learning().score(sequences))

    def teacher(self, model: str, device: str) -> LocalTeacher:
        config, here = self._start.config, self._policy.device
        if self._vision is not None:
            raise ConfigError(f"train.teacher={model}: a model that sees images cannot have a teacher yet.")
        known = self._tokenizer.get_vocab()
        check_vocabulary(model, known, load_tokenizer(model).get_vocab())
        there = choose_device(device) if device else here
        load = partial(load_teacher, model, there, self._dtype, config)
        thread = self._compute.thread if there == here else None
        return LocalTeacher(load, thread, config.train.microbatch_tokens, 1 + max(known.values()))

    def save(self, checkpoint: Checkpoint, run: Mapping[str, Any]) -> None:
        folder, lora = checkpoint.folder, self._start.config.train.lora
        learner, adapters = self._learning(), adapter_weights(self._model)
        if self._vision is not None:
            self._vision.save(folder)
        if lora is not None:
            plain = {name.replace(".default.", "."): tensor for name, tensor in adapters.items()}
            write_adapter(folder, lora, plain, self._start_folder)
        origin = Origin(self._start_folder, self._stop_token_ids, checkpoint.earlier)
        write_model(folder, self._model, self._tokenizer, origin)
        critic = learner.critic.state_dict() if learner.critic is not None else {}
        own = {"optimizer": learner.optimizer.state_dict(), "trainable": adapters, "critic": critic}
        torch.save({**run, **own, "reference": self._reference}, checkpoint.state)

    def _learning(self) -> Learner:
        if self._learner is None:
            reference = self._frozen() if self._start.config.train.kl > 0 else None
            self._learner = make_learner(self._policy, self._start, self._workers, reference, self._state)
            self._state = None  # the optimizer has a copy
        return self._learner

    def _frozen(self) -> Policy:
        """The policy at the start of the stage. That of the first is the start model, which can be had again."""
        self._check_reference()
        lora, later = self._start.config.train.lora, self._start.stage > 0
        if lora is not None and not self._copies_reference:
            return StartPolicy(self._policy)
        if lora is not None:
            self._reference = self._reference or adapter_weights(self._model)
            return EarlierPolicy(self._policy, self._reference)
        again = self._start.checkpoint is not None and not later
        model = self._start_model()[0] if again else copy.deepcopy(self._model)
        # Not probed again: a frozen model has no gradients to compare.
        model.to(self._policy.device).requires_grad_(requires_grad=False)
        if computes_in_bfloat16(self._model):
            compute_in_bfloat16(model)
        if self._reference is not None:
            model.load_state_dict(self._reference)
        if later:
            self._reference = model.state_dict()
        return self._policy.of(model)

    @property
    def _copies_reference(self) -> bool:
        """Whether the stage begins with weights that only this run has, or that lie beside an adapter's base."""
        lora = self._start.config.train.lora
        return self._start.stage > 0 or (lora is not None and bool(lora.adapter))

    def _check_reference(self) -> None:
        if self._copies_reference and self._state is not None and self._reference is None:
            raise ConfigError(
                f"train.kl={self._start.config.train.kl:g} compares with the policy at the start of the stage, and the "
                "checkpoint has no copy of it, since train.kl was 0 then. Set it to 0 again."
            )

    async def close(self) -> None:
        await self._stack.aclose()


def _among(program: Callable[[Engine], None], workers: Workers) -> None:
    """Run the program as one of several processes."""
    engine = LocalEngine()
    engine._workers = workers
    program(engine)


def _check_critic(train: TrainConfig) -> None:
    if train.aggregation != "token":
        raise ConfigError(
            f"train.aggregation={train.aggregation}: with train.advantage=gae each token weighs the same. Set token."
        )
    if train.refill:
        raise ConfigError(
            "train.refill=true compares the attempts of a group, and train.advantage=gae does not. Leave one out."
        )
