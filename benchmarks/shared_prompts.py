"""A training step on prompts that the attempts of a group share, beside an earlier commit: time and memory.

    python benchmarks/shared_prompts.py                          # writes benchmarks/results/shared_prompts.md
    python benchmarks/shared_prompts.py --cases "0.3 M, 1,000"   # some rows, which are only shown

Each case is ``rlfactory run`` on `prompts_task` with the code of either commit, in turns and in one environment
(`equal_trees`). The models have random weights: what a token costs does not depend on them. Nothing else is set than
the keys of a case, so each commit computes in the type that it chooses itself, and but for the largest model, which
the earlier commit cannot train in 24 GiB with its own choice, in micro-batches of the size that it chooses.
Sampling and update are timed by the run's own metrics, the peak is of the process with all that it loads. Of a case
with several steps the first is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from equal_trees import ROOT, Tree
from machine import describe, finish, publish, sized
from prompts_task import WORDS

BEFORE = "800ceb21"  # before the prompts of groups were shared
PAGE = ROOT / "benchmarks" / "results" / "shared_prompts.md"
TASK = str(ROOT / "benchmarks" / "prompts_task.py")
TINY = {"hidden_size": 96, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 3}
LARGER = {"hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 6, "num_attention_heads": 8}
SMOLLM2 = {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9}
MODELS: dict[str, dict[str, int]] = {
    "0.3 M": {**TINY, "num_key_value_heads": 1, "vocab_size": 1024},
    "5 M": {**LARGER, "num_key_value_heads": 4, "vocab_size": 1024},
    "135 M": {**SMOLLM2, "num_key_value_heads": 3, "vocab_size": 49152},  # the shape of SmolLM2-135M
}
ALWAYS = ("train.workers=1", "eval.every=0", "eval.limit=1", "eval.sampled=false", "checkpoint.every=0", "device=cpu")
COLUMNS = ("parameters", "prompts x attempts", "prompt", "", "sampling, s", "update, s", "step, s", "sampled tokens/s")
COLUMNS += ("peak, GiB", "mismatch", "sampling", "update", "step", "bar")
TURN = 56  # tokens
PEAK = """
import resource, subprocess, sys
done = subprocess.run([sys.executable, "-m", "rlfactory_core", *sys.argv[1:]], stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(done.returncode)
"""  # a program that runs the command and prints its peak in KiB; its other children would be in this process's


@dataclass(frozen=True)
class Case:
    """What is measured, and the ratio that it has to reach."""

    model: str
    prompts: int  # of a step
    group: int
    shared: int  # words that all prompts share, and those of each prompt; nearly all are one token
    own: int
    steps: int
    bar: float
    whole: bool = False  # the bar is of the whole step; else of sampling and of the update, each
    microbatch: int = 0  # tokens; 0: what each commit chooses

    @property
    def name(self) -> str:
        return f"{self.model}, {self.shared + self.own:,}"

    @property
    def keys(self) -> tuple[str, ...]:
        sizes = (f"train.prompts_per_step={self.prompts}", f"train.group_size={self.group}")
        turn = (f"rollout.max_turn_tokens={TURN}", "rollout.max_turns=1", "rollout.max_tokens=1400")
        limit = (f"train.microbatch_tokens={self.microbatch}",) if self.microbatch else ()
        return (*sizes, *turn, *limit, f"task.shared={self.shared}", f"task.own={self.own}")


CASES = [
    Case("135 M", 10, 6, 60, 260, 1, 6.0, whole=True, microbatch=2048),
    Case("0.3 M", 16, 8, 200, 780, 4, 4.0),
    Case("5 M", 8, 8, 200, 780, 3, 4.0),
    Case("135 M", 2, 8, 200, 780, 1, 4.0, microbatch=2048),
]
SMALLEST = [Case("0.3 M", 2, 3, 20, 30, 1, 0.0)]


@dataclass(frozen=True)
class Cost:
    """What a step took."""

    sampling: float  # seconds
    update: float
    peak: float  # GiB
    mismatch: float  # KL between sampler and trainer, nats per token
    sampled: float  # tokens

    @property
    def step(self) -> float:
        return self.sampling + self.update


@dataclass(frozen=True)
class Pair:
    case: Case
    before: Cost
    after: Cost

    @property
    def ratios(self) -> tuple[float, float, float]:
        """Of sampling, of the update and of the whole step."""
        one, other = self.before, self.after
        return one.sampling / other.sampling, one.update / other.update, one.step / other.step

    @property
    def held(self) -> bool:
        return (self.ratios[2] if self.case.whole else min(self.ratios[:2])) >= self.case.bar

    def rows(self) -> list[str]:
        bar = f"{'whole step' if self.case.whole else 'sampling, update'} >= {self.case.bar:g} x"
        what = f"{self.case.model} | {self.case.prompts} x {self.case.group} | {self.case.shared + self.case.own:,}"
        ratios = " | ".join(f"{each:.1f} x" for each in self.ratios)
        return [
            f"| {what} | before | {_cells(self.before)} | | | | |",
            f"| {what} | after | {_cells(self.after)} | {ratios} | {bar} |",
        ]


def _cells(cost: Cost) -> str:
    rate = f"{cost.sampled / cost.sampling:,.0f}"
    seconds = [f"{each:.2f}" for each in (cost.sampling, cost.update, cost.step)]
    return " | ".join([*seconds, rate, f"{cost.peak:.1f}", f"{cost.mismatch:.1e}"])


def make_model(name: str, folder: Path) -> Path:
    """A model of this size with random weights, written once."""
    from transformers import LlamaConfig, LlamaForCausalLM, set_seed

    from rlfactory_core.engines.local.tiny.tiny_model import build_tokenizer

    place = folder / name.replace(" ", "")
    if not place.exists():
        tokenizer: Any = build_tokenizer((f" {word}" for word in WORDS for _ in range(3)), 1024)
        set_seed(0)
        names = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id, "bos_token_id": None}
        config = LlamaConfig(**MODELS[name], **names, tie_word_embeddings=True, max_position_embeddings=2048)
        LlamaForCausalLM(config).save_pretrained(place)
        tokenizer.save_pretrained(place)
    return place


def measure(case: Case, tree: Tree, model: Path) -> Cost:
    """A run of the case with the tree's code, in a process of its own."""
    out = tree.runs / case.name.replace(" ", "")
    shutil.rmtree(out, ignore_errors=True)
    command = ["run", "--plugin", TASK, "--model", str(model), "--steps", str(case.steps), "--out", str(out)]
    done = subprocess.run(
        [sys.executable, "-c", PEAK, *command, *ALWAYS, *case.keys],
        env={**os.environ, **tree.environment},
        cwd=tree.runs,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    counted = [row for row in rows if "update_s" in row][-max(1, case.steps - 1) :]
    found = {key: median(row[key] for row in counted) for key in ("rollout_wait_s", "update_s", "mismatch_kl")}
    return Cost(
        found["rollout_wait_s"],
        found["update_s"],
        int(done.stdout) / 2**20,
        found["mismatch_kl"],
        case.prompts * case.group * TURN,
    )


def report(pairs: Sequence[Pair], before: Tree, after: Tree, command: str) -> str:
    rows = [row for pair in pairs for row in pair.rows()]
    return f"""# Prompts that attempts share, beside an earlier commit

Before: {before.name}. After: {after.name}. A step of GRPO on a model with random weights: prompts x attempts, each
of one turn of {TURN} tokens at temperature 1. Prompts have about so many tokens, of which all share the first 60 or
200. Each commit chooses its types, and its micro-batches but for 135 M, which has 2,048 tokens. Mismatch: KL between
the sampler's and the trainer's log-probs.

| {" | ".join(COLUMNS)} |
|{"---|" * len(COLUMNS)}
{chr(10).join(rows)}

Made by `{command}` on {describe()}.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", default=sized(BEFORE, ""), help="a commit; empty: the working tree")
    parser.add_argument("--after", default="", help="a commit; empty: the working tree")
    cases = {case.name: case for case in sized(CASES, SMALLEST)}
    parser.add_argument("--cases", nargs="+", choices=cases, default=list(cases))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        trees = [Tree.make(getattr(options, name), Path(scratch, name)) for name in ("before", "after")]
        pairs = []
        for case in (cases[name] for name in options.cases):
            model = make_model(case.model, Path(scratch))
            pairs.append(Pair(case, *(measure(case, tree, model) for tree in trees)))
            print("\n".join(pairs[-1].rows()), file=sys.stderr, flush=True)
        if options.cases == list(cases):
            publish(PAGE, report(pairs, *trees, "python benchmarks/shared_prompts.py"))
    finish(held=all(pair.held for pair in pairs))


if __name__ == "__main__":
    main()
