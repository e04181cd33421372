"""How far it is from the training loop to the sampler, to a user's tool and to the first token, in a real run.

    python benchmarks/walk.py                     # 442714da beside the working tree; writes benchmarks/results/walk.md

``rlfactory run --plugin search`` takes one step in one process, while each call of a function of rlfactory is noted.
Calls are followed into the tasks and threads that they start; comprehensions and lambdas are not counted.

- **Loop to sampler**: functions called one by the other below the loop's function, up to and with the sampler's.
- **Message to the user's tool**: likewise, with the function that has the model's message: the last one on both ways.
- **Stations to the first token**: functions from the loop's on, before the model's first forward pass, that call a
  further function; constructors are not counted. Beside it, all functions that are entered, and their files.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from equal_trees import ROOT, Tree
from machine import describe, finish, publish, sized
from walk_trace import MODEL, Chain

BEFORE = "442714da"  # before the training loop had a room of its own
PAGE = ROOT / "benchmarks" / "results" / "walk.md"
LOOPS = ("rlfactory_core/training/loop.py", "rlfactory_core/engines/local/training/trainer.py")
LIMITS = ("train.workers=1", "train.prompts_per_step=2", "train.group_size=4", "device=cpu", "checkpoint.every=0")
BARS = (10, 8, 35)


@dataclass(frozen=True)
class Walk:
    """The chains and stations of one commit's run."""

    name: str
    sampler: Chain
    tool: Chain
    stations: Chain
    functions: Chain

    @property
    def counts(self) -> tuple[int, int, int]:
        return len(self.sampler) - 1, len(self.tool), len(self.stations)

    @classmethod
    def of(cls, tree: Tree, model: str, folder: Path) -> Walk:
        """Run a tree's code."""
        out = folder / "trace.json"
        task = str(ROOT / "benchmarks" / "walk_task.py")
        arguments = ["run", "--plugin", task, "--steps", "1", "--out", str(folder / "run"), *LIMITS]
        if model:
            turns = ("rollout.max_turns=4", "rollout.max_turn_tokens=48", "rollout.max_tokens=512")
            arguments += ["--model", model, *turns]
        program = str(ROOT / "benchmarks" / "walk_trace.py")
        command = [sys.executable, program, str(tree.code), str(out), ",".join(LOOPS), *arguments]
        subprocess.run(command, check=True, env={**os.environ, **tree.environment}, cwd=folder)
        found = json.loads(out.read_text(encoding="utf-8"))
        loop = next(file for file in LOOPS if any(each.startswith(file) for each in found["chains"]["sampler"]))
        sampler, tool = (_from(loop, found["chains"][name]) for name in ("sampler", "tool"))
        common = next(i for i, (one, other) in enumerate(zip(sampler, tool, strict=False)) if one != other)
        begun = next(i for i, (_, name) in enumerate(found["calls"]) if name == sampler[0])
        calls = found["calls"][begun:]
        ends = next(i for i, (_, name) in enumerate(calls) if name.startswith(MODEL) and name.endswith("forward"))
        chain = found["chains"]["sampler"]
        above = set(chain[: chain.index(sampler[0])])  # coroutines that wait for the loop are entered again
        entered = [name for name in dict.fromkeys(name for _, name in calls[:ends]) if name not in above]
        callers = {caller for caller, _ in calls[: ends + 1]}
        stations = [name for name in entered if name in callers and not name.endswith("__init__")]
        return cls(tree.name, sampler, tool[common - 1 :], stations, entered)


def _from(loop: str, chain: Chain) -> Chain:
    """The chain from the loop's first function on."""
    return chain[next(i for i, name in enumerate(chain) if name.startswith(loop)) :]


def report(walks: Sequence[Walk], command: str) -> str:
    rows = [
        "| commit | loop to sampler | message to the user's tool | stations | functions | files |",
        "|---" * 6 + "|",
    ]
    for walk in walks:
        cells = [f"**{n}**" if n > bar else str(n) for n, bar in zip(walk.counts, BARS, strict=True)]
        files = len({name.partition(":")[0] for name in walk.functions})
        rows.append(f"| {walk.name} | {' | '.join(cells)} | {len(walk.functions)} | {files} |")
    rows.append(f"| bar | {' | '.join(f'≤ {bar}' for bar in BARS)} | | |")
    parts = [f"# The walk of a run\n\n{_about()}\n\n" + "\n".join(rows)]
    for walk in walks[-1:]:
        for title, chain in (("loop to sampler", walk.sampler), ("message to tool", walk.tool)):
            parts.append(
                f"{walk.name}, {title}:\n\n" + "\n".join(f"{i}. `{_short(name)}`" for i, name in enumerate(chain))
            )
        parts.append(f"{walk.name}, stations:\n\n" + "\n".join(f"1. `{_short(name)}`" for name in walk.stations))
    return "\n\n".join(parts) + f"\n\nMade by `{command}` on {describe()}.\n"


def _short(name: str) -> str:
    return name.replace("rlfactory_core/", "").replace(".py:", ": ")


def _about() -> str:
    return (__doc__ or "").partition("\n\n")[2].partition("\n\n")[2].strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", default=sized(BEFORE, ""), help="a commit; empty: none")
    parser.add_argument("--after", default="", help="a commit; empty: the working tree")
    parser.add_argument("--model", default="", help="a warm-started model of the search task; none: from the cache")
    options = parser.parse_args()
    walks = []
    for name in filter(None, dict.fromkeys((options.before, options.after or "tree"))):
        with tempfile.TemporaryDirectory() as scratch:
            tree = Tree.make("" if name == "tree" else name, Path(scratch))
            walks.append(Walk.of(tree, options.model, Path(scratch)))
    publish(PAGE, report(walks, "python benchmarks/walk.py"))
    finish(held=all(n <= bar for n, bar in zip(walks[-1].counts, BARS, strict=True)))


if __name__ == "__main__":
    main()
