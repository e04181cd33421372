"""The embedded engine on a GPU, at the shapes of Qwen3-0.6B and Qwen3-4B: probe, prefill, decoding, updates.

    python benchmarks/gpu_engine.py       # writes benchmarks/results/gpu_engine.md; on one GPU of 80 GB

Weights are random and in bfloat16: what a token costs does not depend on them. No tool is called and no text is read,
so these are the rates of the decoder and of the update alone. Every turn is as long as asked, since no token ends one.

The share of the GPU's peak counts 2 multiplications and additions a parameter and token in sampling and 6 in training,
4 and 12 a layer, attended token and unit of the heads' width (PaLM, arXiv 2204.02311, appendix B). With frozen weights
training counts 4 a parameter: no gradient of them is computed. What is computed again by gradient checkpointing does
not count.
"""

from __future__ import annotations

import argparse
import gc
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from machine import MINIATURE, describe, publish, sized

from rlfactory_core.algo.losses import LossOptions
from rlfactory_core.algo.settings import LoraConfig
from rlfactory_core.engines.local.decoding.decoder import Request, SlotDecoder
from rlfactory_core.engines.local.learning.learner import Learner
from rlfactory_core.engines.local.learning.optimizer import Optimizer, OptimizerOptions
from rlfactory_core.engines.local.model.loading import checkpoint_activations, make_policy
from rlfactory_core.engines.local.model.lora import add_lora
from rlfactory_core.engines.local.model.pack import pack
from rlfactory_core.engines.local.model.policy import RaggedPolicy
from rlfactory_core.engines.local.workers import Workers
from rlfactory_core.types import SamplingParams, TrainSequence

RESULTS = Path(__file__).parent / "results" / "gpu_engine.md"
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
PEAK = {"H100": 989e12, "H200": 989e12}  # FLOP/s in bfloat16, dense; NVIDIA's data sheets
PROMPT, TURN = sized(512, 8), sized(256, 8)  # tokens
SLOTS = sized((16, 64, 256), (2,))
ROUNDS = 3  # updates, the first of which is not timed


@dataclass(frozen=True)
class Shape:
    """A model's, by the names of its configuration in transformers."""

    name: str
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int = 8
    head_dim: int = 128
    vocab_size: int = 151_936

    def model(self) -> Any:
        from transformers import Qwen3Config, Qwen3ForCausalLM

        given = {name: value for name, value in vars(self).items() if name != "name"}
        config = Qwen3Config(**given, tie_word_embeddings=True, max_position_embeddings=40_960)
        torch.manual_seed(0)
        with torch.device(DEVICE):
            return Qwen3ForCausalLM(config).to(torch.bfloat16 if DEVICE.type == "cuda" else torch.float32).eval()

    def operations(self, parameters: int, a_parameter: int, attended: float) -> float:
        """Of a token that attends to so many."""
        width = self.num_attention_heads * self.head_dim
        return parameters * a_parameter + 2 * a_parameter * self.num_hidden_layers * width * attended


@dataclass(frozen=True)
class Update:
    """Sequences of one optimizer step, in one micro-batch."""

    sequences: int
    tokens: int  # of each
    checkpointing: bool = False

    def batch(self, vocabulary: int) -> list[TrainSequence]:
        """The first quarter is the prompt, half of the rest is sampled, in turns of equal length."""
        draw = random.Random(0)
        prompt, turn = self.tokens // 4, max(1, self.tokens // 16)
        mask = tuple(int(i >= prompt and (i - prompt) // turn % 2 == 0) for i in range(self.tokens))
        ids = [tuple(draw.randrange(vocabulary) for _ in range(self.tokens)) for _ in range(self.sequences)]
        advantages, logprobs = (tuple(value * m for m in mask) for value in (1.0, -12.0))
        return [TrainSequence(each, mask, advantages, logprobs) for each in ids]


SHAPES = sized(
    (
        Shape("Qwen3-0.6B", 1024, 3072, 28, 16),
        Shape("Qwen3-4B", 2560, 9728, 36, 32),
    ),
    (Shape("tiny", 32, 64, 2, 2, 1, 16, 300),),
)
FULL = {
    "Qwen3-0.6B": (Update(16, 1024), Update(4, 4096), Update(1, 16384), Update(1, 16384, checkpointing=True)),
    "Qwen3-4B": (Update(4, 1024, checkpointing=True), Update(4, 2048, checkpointing=True)),
    "tiny": (Update(4, 64), Update(1, 64, checkpointing=True)),
}
LORA = {
    "Qwen3-0.6B": (Update(16, 1024),),
    "Qwen3-4B": (Update(4, 1024), Update(16, 1024, checkpointing=True), Update(1, 16384, checkpointing=True)),
    "tiny": (Update(4, 64),),
}


def seconds(work: Callable[[], object]) -> float:
    synchronize()
    start = time.perf_counter()
    work()
    synchronize()
    return time.perf_counter() - start


def synchronize() -> None:
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def clean() -> None:
    gc.collect()
    if DEVICE.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def peak_gib() -> float:
    return torch.cuda.max_memory_allocated() / 2**30 if DEVICE.type == "cuda" else float("nan")


def share(operations: float, took: float) -> str:
    """Of the GPU's peak."""
    name = torch.cuda.get_device_name() if DEVICE.type == "cuda" else ""
    peak = next((value for key, value in PEAK.items() if key in name), float("nan"))
    return f"{operations / took / peak:.1%}"


def parameters(model: Any) -> int:
    return sum(p.numel() for p in model.parameters())


def probed(shape: Shape) -> tuple[RaggedPolicy, str]:
    clean()
    model = shape.model()
    start = time.perf_counter()
    policy, report = make_policy(model)
    took = time.perf_counter() - start
    assert isinstance(policy, RaggedPolicy), report.reason
    errors = f"{report.sampling_error:.1e} | {report.training_error:.1e} | {report.gradient_error:.1e}"
    return policy, f"| {shape.name} | {parameters(model):,} | {took:.1f} | {errors} | {peak_gib():.1f} |"


def decoded(shape: Shape, policy: RaggedPolicy, slots: int) -> str:
    """Prompts that share their first half, and a turn after each."""
    clean()
    draw = random.Random(0)
    ids = [tuple(draw.randrange(shape.vocab_size) for _ in range(PROMPT)) for _ in range(slots)]
    ids = [ids[0][: PROMPT // 2] + own[PROMPT // 2 :] for own in ids]
    asked = [Request(str(i), own, SamplingParams(TURN, seed=i)) for i, own in enumerate(ids)]

    def started() -> SlotDecoder:
        return SlotDecoder(policy, slots=slots, prefix=ids[0][: PROMPT // 2], stop_token_ids=())

    def turns() -> None:
        while decoder.active:
            decoder.step()

    started().admit(asked)  # the first use of each kernel is not timed
    clean()
    decoder = started()
    times = seconds(lambda: decoder.admit(asked)), seconds(turns)
    counts = slots * PROMPT // 2 + PROMPT // 2, slots * (TURN - 1)  # admit has sampled each turn's first token
    attended = PROMPT / 2, PROMPT + TURN / 2
    size = parameters(policy.model)
    cells = [
        f"{count / took:,.0f} | {share(count * shape.operations(size, 2, seen), took)}"
        for count, took, seen in zip(counts, times, attended, strict=True)
    ]
    step_ms = times[1] / (TURN - 1) * 1e3
    return f"| {shape.name} | {slots} | {' | '.join(cells)} | {step_ms:.1f} | {peak_gib():.1f} |"


def updated(shape: Shape, how: Update, lora: bool) -> str:
    clean()
    model = shape.model()
    if lora:
        model = add_lora(model, LoraConfig(rank=32, alpha=64))
    policy = RaggedPolicy(model)
    if how.checkpointing:
        checkpoint_activations(model)
    size = parameters(model)
    learner = Learner(policy, Optimizer(model, OptimizerOptions(lr=1e-6, explode_norm=1e9)), Workers(), LossOptions())
    packed = [pack(how.batch(shape.vocab_size), DEVICE, share_prefix=True)]
    kind = "LoRA, rank 32" if lora else "all weights"
    named = f"| {shape.name} | {kind} | {how.sequences} x {how.tokens:,} | {'yes' if how.checkpointing else 'no'} |"
    try:
        took = min(seconds(lambda: learner.step(packed)) for _ in range(ROUNDS))
    except torch.OutOfMemoryError:
        return f"{named} out of memory | | | |"
    tokens = how.sequences * how.tokens
    operations = tokens * shape.operations(size, 4 if lora else 6, how.tokens / 2)
    rates = f"{tokens / took:,.0f} | {len(packed[0].place) / took:,.0f} | {share(operations, took)}"
    return f"{named} {rates} | {peak_gib():.1f} |"


def rows(chosen: Sequence[Shape]) -> Iterator[tuple[str, str]]:
    """Each row with the name of its table."""
    for shape in chosen:
        policy, row = probed(shape)
        yield "probe", row
        for slots in SLOTS:
            yield "decode", decoded(shape, policy, slots)
        del policy
        for lora, updates in ((False, FULL[shape.name]), (True, LORA[shape.name])):
            for how in updates:
                yield "update", updated(shape, how, lora)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="*", default=[shape.name for shape in SHAPES])
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    if DEVICE.type != "cuda" and not MINIATURE:
        parser.error("There is no GPU here.")
    tables: dict[str, list[str]] = {"probe": [], "decode": [], "update": []}
    for table, row in rows([shape for shape in SHAPES if shape.name in arguments.shapes]):
        tables[table].append(row)
        print(row, flush=True)
    publish(arguments.out, report(tables))


def report(tables: dict[str, list[str]]) -> str:
    device = torch.cuda.get_device_name() if DEVICE.type == "cuda" else "no GPU"
    return f"""# The embedded engine on a GPU

Random weights at the shapes of Qwen3, bfloat16, one process, one GPU. Rates are of the decoder and of the update alone.
The share of peak is of 989 TFLOP/s; `benchmarks/gpu_engine.py` has the formula.

## Probe

The errors are the worst of all tokens: of log-probs in nats, and of the gradient relative to its largest entry. The
probe compares in float32.

| model | parameters | s | sampling | training | gradient | peak GiB |
|---|---|---|---|---|---|---|
{chr(10).join(tables["probe"])}

## Sampling

Prompts of {PROMPT} tokens that share their first half, and turns of {TURN} tokens at temperature 1.

| model | trajectories | prefill, tokens/s | of peak | decoding, tokens/s | of peak | ms a step | peak GiB |
|---|---|---|---|---|---|---|---|
{chr(10).join(tables["decode"])}

## Update

One optimizer step on one micro-batch, AdamW: forward, backward, clipping, step. A quarter of a sequence is its prompt.
Half of the rest was sampled by the policy and is trained on, the other half stands for tools' results.

| model | trained | sequences x tokens | gradient checkpointing | tokens/s | trained tokens/s | of peak | peak GiB |
|---|---|---|---|---|---|---|---|
{chr(10).join(tables["update"])}

Made by `python benchmarks/gpu_engine.py` on {device}; {describe("peft")}.
"""


if __name__ == "__main__":
    main()
