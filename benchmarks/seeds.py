"""A benchmark that is the same whole runs for several seeds, and a table of them."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from machine import describe, finish, publish, sized

SEEDS = (0, 1, 2)


class Run(Protocol):
    """What one seed gave."""

    @property
    def held(self) -> bool:
        """Whether it met all bars."""
        ...


R = TypeVar("R", bound=Run)


def run_plugin(plugin: str, seed: int, scratch: Path, name: str = "run", *keys: str) -> tuple[float, Path]:
    """The whole command in a process of its own, with an empty cache: its seconds of wall time, and the run's folder.

    The runs of one seed have names of their own, and share their cache; ``keys`` are further ones, such as train.lr=1.
    A miniature takes two steps, and warm-started models from the cache that the environment names, if it does.
    """
    out, cache = scratch / f"{name}-{seed}", scratch / f"cache-{seed}"
    os.environ["RLFACTORY_CACHE"] = sized(str(cache), os.environ.get("RLFACTORY_CACHE", str(cache)))
    command = [sys.executable, "-m", "rlfactory_core", "run", "--plugin", plugin]
    command += ["--seed", str(seed), "--out", str(out), *keys]
    command += sized(
        [], ["train.steps=2", "eval.every=1", "eval.limit=24", "train.prompts_per_step=4", "train.workers=1"]
    )
    start = time.perf_counter()
    subprocess.run(command, check=True)
    return time.perf_counter() - start, out


def measure_seeds(
    file: str,
    doc: str,
    run: Callable[[int, Path], R],
    report: Callable[[Sequence[R], str], str],
    seeds: Sequence[int] = SEEDS,
) -> None:
    """Run each seed, write ``results/NAME.md`` and end the program: with 1 where a seed misses a bar.

    Args:
        file: the benchmark's own, ``__file__``.
        report: makes the table, of the runs and the command that made them.
        seeds: those of the published table.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=sized(list(seeds), [0]))
    asked = parser.parse_args().seeds
    with tempfile.TemporaryDirectory() as scratch:
        runs = [run(seed, Path(scratch)) for seed in asked]
    name = Path(file).stem
    command = f"python benchmarks/{name}.py"
    text = report(runs, command if asked == list(seeds) else f"{command} --seeds {' '.join(map(str, asked))}")
    publish(Path(file).with_name("results") / f"{name}.md", text)
    finish(held=all(one.held for one in runs))


@dataclass(frozen=True)
class Bar:
    """What a run's figure has to be before and after the training."""

    text: tuple[str, str]  # for the two columns
    holds: Callable[[float, float], bool]


@dataclass(frozen=True)
class Case:
    """A run that each seed makes."""

    plugin: str
    figure: str  # the key in the summary's evaluations
    keys: tuple[str, ...] = ()  # further ones of the configuration


@dataclass(frozen=True)
class _Learnt:
    """One seed: by case, wall seconds and the figure before and after."""

    seed: int
    found: Mapping[str, tuple[float, float, float]]
    bar: Bar

    @property
    def held(self) -> bool:
        return all(self.bar.holds(before, after) for _, before, after in self.found.values())


def measure_learning(
    file: str,
    doc: str,
    cases: Mapping[str, Case],
    *,
    title: str,
    what: str,
    figure: str,
    bar: Bar,
    libraries: Sequence[str],
) -> None:
    """`measure_seeds` of runs that are measured by one figure before and after.

    Args:
        cases: by the name in the table; a miniature makes the first alone.
        title: of the page of results.
        what: the page's first sentences.
        figure: its name in the table.
        libraries: whose versions are named.
    """

    def run(seed: int, scratch: Path) -> _Learnt:
        found = {}
        for number, case in enumerate(sized(list(cases.values()), list(cases.values())[:1])):
            seconds, out = run_plugin(case.plugin, seed, scratch / str(number), "run", *case.keys)
            evaluations = json.loads((out / "summary.json").read_text())["eval"]
            found[list(cases)[number]] = (seconds, *(evaluations[when][case.figure] for when in ("before", "after")))
        return _Learnt(seed, found, bar)

    def report(runs: Sequence[_Learnt], command: str) -> str:
        rows = [f"| seed | run | {figure}, before | {figure}, after | seconds |", "|---|---|---|---|---|"]
        rows += [
            f"| {one.seed} | {name} | {before:.3f} | {after:.3f} | {seconds:.0f} |"
            for one in runs
            for name, (seconds, before, after) in one.found.items()
        ]
        rows.append(f"| bar | | {bar.text[0]} | {bar.text[1]} | |")
        table = "\n".join(rows)
        return f"# {title}\n\n{what}\n\n{table}\n\nMade by `{command}` on {describe(*libraries)}.\n"

    measure_seeds(file, doc, run, report)
