"""Proves that a copy of a trained model, loaded by a plain library, gives the greedy answers of the run's model.

The run's model answers some prompts through this engine. The copy reads each prompt with that answer, and has to prefer
every token of it: then it would have written the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rlfactory_core.engines.adapters import is_adapter, read_adapter
from rlfactory_core.engines.base import EngineStart, MakeChat
from rlfactory_core.engines.local.engine import LocalEngine
from rlfactory_core.engines.local.model.four_bits import bitsandbytes
from rlfactory_core.engines.local.model.loading import (
    auto_class,
    choose_device,
    load_tokenizer,
    local_model,
    quiet_transformers,
)
from rlfactory_core.engines.settings import EngineSettings
from rlfactory_core.engines.tiny import TinyModel
from rlfactory_core.errors import MissingExtraError, ModelError
from rlfactory_core.reporting.progress import Progress, count_text
from rlfactory_core.rollout.settings import RolloutConfig
from rlfactory_core.types import SamplingParams

ANSWER_TOKENS = 32  # at most, of each answer


@dataclass(frozen=True, slots=True)
class Answer:
    """A prompt, and what the run's model answers greedily."""

    prompt: tuple[int, ...]
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far a copy agrees with the run's answers."""

    answers: int
    tokens: int
    other: int  # tokens to which the copy prefers another one
    gap: float  # by how much at most, in log-probability

    def line(self, library: str) -> str:
        """The result in a sentence, for the user."""
        what = f"{count_text(self.answers, 'greedy answer')} of the run's model ({count_text(self.tokens, 'token')})"
        but = f", but for {count_text(self.other, 'token')} within {self.gap:.1g} nats of a tie" if self.other else ""
        return f"proved: {library} gives the {what}{but}"


def greedy_answers(
    folder: Path, prompts: Sequence[tuple[int, ...]], make_chat: MakeChat, device: str, progress: Progress
) -> list[Answer]:
    """What the model in a checkpoint's folder answers, in float32.

    Raises:
        ModelError: the folder cannot be loaded.
    """
    longest = max(map(len, prompts))
    rollout = RolloutConfig(max_tokens=longest + ANSWER_TOKENS, max_turn_tokens=ANSWER_TOKENS, slots=len(prompts))
    config = EngineSettings(plugin="", model=str(folder), device=device, dtype="float32", rollout=rollout)

    def no_tiny_model() -> TinyModel:
        raise ModelError("A checkpoint is a model of its own.")

    async def answer() -> list[Answer]:
        engine = LocalEngine()
        try:
            opened = engine.open(EngineStart(config, progress, no_tiny_model))
            chat = make_chat(opened.tokenizer, images=opened.sees_images)
            sampler = await engine.sampler(chat, None, 0)
            params = SamplingParams(ANSWER_TOKENS, 0.0, stop_token_ids=tuple(chat.stop_token_ids))
            sampled = (sampler.sample(ids, params, session=str(at)) for at, ids in enumerate(prompts))
            answers = [tuple(each.token_ids) for each in await asyncio.gather(*sampled)]
        finally:
            await engine.close()
        return [Answer(prompt, ids) for prompt, ids in zip(prompts, answers, strict=True)]

    return asyncio.run(answer())


@quiet_transformers()
def load_copy(folder: Path, device: str) -> Any:
    """A model as transformers loads it, or as PEFT loads an adapter; in float32, but for a base in 4 bits.

    Raises:
        ModelError: the base of the adapter cannot be loaded.
        MissingExtraError: PEFT is not installed.
    """
    from transformers import AutoConfig, BitsAndBytesConfig

    adapter, there = read_adapter(folder) if is_adapter(folder) else None, choose_device(device)
    source = local_model(adapter.base) if adapter else str(folder)
    keys: dict[str, Any] = {}
    if adapter and adapter.lora.get("base_bits"):
        bitsandbytes("functional", "A base in 4 bits")
        rounding = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_compute_dtype": torch.float32}
        keys = {"quantization_config": BitsAndBytesConfig(**rounding), "device_map": {"": there}}
    try:
        config = AutoConfig.from_pretrained(source)
        model = auto_class(config).from_pretrained(source, dtype=torch.float32, **keys)
    except Exception as error:  # a damaged file can raise any error
        raise ModelError(f"The model '{source}' cannot be loaded: {error}") from error
    if adapter:
        try:
            from peft import PeftModel
        except ImportError as error:
            raise MissingExtraError(
                "An adapter is proved by PEFT, which is not installed: pip install 'rlfactory-core[lora]'"
            ) from error
        model = PeftModel.from_pretrained(model, folder)
    return model.to(there).eval()


@torch.no_grad()
def agreement(model: Any, answers: Sequence[Answer]) -> Agreement:
    """Of a copy that `load_copy` returns."""
    other, gap = 0, 0.0
    for answer in answers:
        ids = torch.tensor([(*answer.prompt, *answer.ids)], device=next(model.parameters()).device)
        logits = model(input_ids=ids, use_cache=False).logits[0, len(answer.prompt) - 1 : -1].float()
        logprobs = torch.log_softmax(logits, -1)
        chosen = logprobs.gather(1, ids[0, len(answer.prompt) :, None])[:, 0]
        behind = logprobs.max(-1).values - chosen
        other += int((behind > 0).sum())
        gap = max(gap, float(behind.max()))
    return Agreement(len(answers), sum(len(answer.ids) for answer in answers), other, gap)


def check_tokenizer(folder: Path, original: Path, prompts: Iterable[tuple[int, ...]]) -> None:
    """
    Raises:
        ModelError: the copy's tokenizer reads the prompts otherwise, or its chat template is another one.
    """
    ours, theirs = load_tokenizer(str(original)), load_tokenizer(str(folder))
    for prompt in prompts:
        text = ours.decode(prompt)
        if ours.encode(text, add_special_tokens=False) != theirs.encode(text, add_special_tokens=False):
            raise ModelError("The copy's tokenizer reads a prompt of the run as other tokens. Please report this.")
    if ours.chat_template != theirs.chat_template:
        raise ModelError("The copy's chat template is not that of the run's model. Please report this.")
