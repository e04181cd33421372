"""Whether a tiny vision-language model learns what it can only see in a picture that a tool returns.

    python benchmarks/images_learn.py            # writes benchmarks/results/images_learn.md

The models are random ones of the architectures Qwen3-VL and Qwen2.5-VL. A short warm start shows them the letters of
the two colours, with answers that do not depend on the picture. Then ``rlfactory run`` trains them on ``lamp_task.py``.
At the end the tool returns one dark picture for all samples, which shows that the answers came from the pictures.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from lamp_task import COLOURS, guess, picture
from machine import describe, sized
from rlfactory_vision import Image
from rlfactory_vision.chat import vision_format
from seeds import measure_seeds, run_plugin

from rlfactory_core.engines.local.model.loading import load_pretrained, make_policy, quiet_transformers
from rlfactory_core.engines.local.tiny.warmstart import WarmStart
from rlfactory_core.engines.local.workers import Workers
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.tiny import Demonstration, TinyModelRecipe, WarmStartStage

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests" / "support"))

from tiny_vision import make_vlm  # noqa: E402

TASK = str(HERE / "lamp_task.py")
STEPS = sized({"qwen3_vl": 60, "qwen2_5_vl": 120}, {"qwen3_vl": 60})  # by architecture
WARM_STEPS, SHADES = sized(120, 2), 32
RISE, BLIND = 0.3, 0.6  # the bars: of sampled answers, at least more; and at most where all pictures are the same


def demonstrate(rng: random.Random) -> Demonstration:
    shown = picture(rng.choice(list(COLOURS)), f"warm start {rng.randrange(SHADES)}")
    return guess(rng, str(Image.of(shown)))


@quiet_transformers()
def warm_started(folder: Path, architecture: str, seed: int) -> None:
    """Make a folder with a random model that has learnt to guess."""
    made = make_vlm(folder.with_suffix(".new"), architecture, seed)
    model, tokenizer = load_pretrained(str(made), torch.device("cpu"), torch.float32)
    chat = vision_format(tokenizer)
    policy, _ = make_policy(model, vision=chat.vision)  # type: ignore[attr-defined]
    stage = WarmStartStage(demonstrate, WARM_STEPS, batch=8)
    recipe = TinyModelRecipe({}, tuple, 0, (stage,), demonstrate, "", lr=6e-3, muon_lr=3e-3)
    WarmStart(policy, recipe, chat, (), Workers(), seed).run(Progress())
    model.save_pretrained(made)
    made.rename(folder)


@dataclass(frozen=True)
class Learnt:
    """One model: the share of right answers to held-out pictures, sampled at temperature 1."""

    seconds: float  # of the run, without the warm start
    before: float
    after: float
    dark: float  # greedy, of the trained model

    @property
    def held(self) -> bool:
        return self.after - self.before >= RISE and self.dark <= BLIND


@dataclass(frozen=True)
class Run:
    """One seed, by architecture."""

    seed: int
    learnt: Mapping[str, Learnt]

    @property
    def held(self) -> bool:
        return all(one.held for one in self.learnt.values())


def run(seed: int, scratch: Path) -> Run:
    return Run(seed, {each: learn(each, seed, scratch / each) for each in STEPS})


def learn(architecture: str, seed: int, scratch: Path) -> Learnt:
    folder = scratch / f"model-{seed}"
    if not folder.exists():
        warm_started(folder, architecture, seed)
    seconds, out = run_plugin(TASK, seed, scratch, "run", "--model", str(folder), f"train.steps={STEPS[architecture]}")
    found = json.loads((out / "summary.json").read_text())["eval"]
    before, after = (found[when]["sampled/colour"] for when in ("before", "after"))
    return Learnt(seconds, before, after, found["after"]["control/dark/colour"])


def report(runs: Sequence[Run], command: str) -> str:
    rows = ["| seed | architecture | steps | before | after | after, with one dark picture for all | seconds |"]
    rows.append("|---|---|---|---|---|---|---|")
    rows += [
        f"| {one.seed} | {name} | {STEPS[name]} | {r.before:.3f} | {r.after:.3f} | {r.dark:.3f} | {r.seconds:.0f} |"
        for one in runs
        for name, r in one.learnt.items()
    ]
    rows.append(f"| bar | | | | ≥ {RISE:g} more | ≤ {BLIND:g} | |")
    table = "\n".join(rows)
    return (
        "# A picture that a tool returns, learnt by tiny vision-language models\n\n"
        "The share of right answers to 64 held-out pictures, sampled at temperature 1, before and after "
        "steps of 64 attempts on the embedded engine. Of two colours, half of all guesses are right. "
        "The models are random ones, and their warm starts have random answers.\n\n"
        f"{table}\n\nMade by `{command}` on {describe()}.\n"
    )


if __name__ == "__main__":
    measure_seeds(__file__, __doc__ or "", run, report)
