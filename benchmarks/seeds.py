"""A benchmark that is the same whole runs for several seeds, and a table of them."""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
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


@dataclass(frozen=True)
class Took:
    """What a command took: seconds of wall time, and of all its processes' processor time."""

    wall: float
    cpu: float


def run_plugin(plugin: str, seed: int, scratch: Path, name: str = "run", *keys: str) -> tuple[float, Path]:
    """The whole command in a process of its own, with an empty cache: its seconds of wall time, and the run's folder.

    The runs of one seed have names of their own, and share their cache; ``keys`` are further ones, such as train.lr=1.
    A miniature takes two steps, and warm-started models from the cache that the environment names, if it does. A run
    that has ended in ``scratch`` before is not repeated.
    """
    took, out = time_plugin(plugin, seed, scratch, name, *keys)
    return took.wall, out


def time_plugin(
    plugin: str, seed: int, scratch: Path, name: str, *keys: str, checkout: Path | None = None
) -> tuple[Took, Path]:
    """As `run_plugin`.

    Args:
        checkout: of another commit, whose code runs in this environment; it has a cache of its own.
    """
    out, cache = scratch / f"{name}-{seed}", scratch / f"cache-{name if checkout else ''}-{seed}"
    measured = scratch / f"{name}-{seed}.json"
    if measured.exists():
        return Took(**json.loads(measured.read_text())), out
    shutil.rmtree(out, ignore_errors=True)
    os.environ["RLFACTORY_CACHE"] = sized(str(cache), os.environ.get("RLFACTORY_CACHE", str(cache)))
    code = (checkout, *checkout.glob("plugins/*")) if checkout is not None else ()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, code))} if code else os.environ
    command = [sys.executable, "-m", "rlfactory_core", "run", "--plugin", plugin]
    command += ["--seed", str(seed), "--out", str(out), *keys]
    command += sized(
        [], ["train.steps=2", "eval.every=1", "eval.limit=24", "train.prompts_per_step=4", "train.workers=1"]
    )
    start, before = time.perf_counter(), _cpu()
    subprocess.run(command, check=True, env=environment, cwd=checkout)  # whose folder comes before PYTHONPATH
    took = Took(time.perf_counter() - start, _cpu() - before)
    measured.write_text(json.dumps(asdict(took)))
    return took, out


def _cpu() -> float:
    """Seconds of processor time of all processes that this one has waited for, and that they have waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure_seeds(
    file: str,
    doc: str,
    run: Callable[[int, Path], R],
    report: Callable[[Sequence[R], str], str],
    seeds: Sequence[int] = SEEDS,
    options: Sequence[argparse.ArgumentParser] = (),
    page: str = "",
) -> None:
    """Run each seed, write a page of results and end the program: with 1 where a seed misses a bar.

    Args:
        file: the benchmark's own, ``__file__``.
        report: makes the table, of the runs and the command that made them.
        seeds: those of the published table.
        options: the benchmark's own, which it reads itself.
        page: the name of the page, if none is asked for; none: the file's.
    """
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter, parents=list(options)
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=sized(list(seeds), [0]))
    parser.add_argument("--runs", type=Path, help="keep the runs in this folder; those that are there are not repeated")
    parser.add_argument("--note", default="", help="the last sentence of the page, such as on the machine's other work")
    parser.add_argument("--page", default=page or Path(file).stem, help="the name of the page of results")
    arguments = parser.parse_args()
    asked = arguments.seeds
    with tempfile.TemporaryDirectory() as scratch:
        runs = [run(seed, (arguments.runs or Path(scratch)).absolute()) for seed in asked]
    name = Path(file).stem
    command = f"python benchmarks/{name}.py"
    if arguments.page != parser.get_default("page"):
        command += f" --page {arguments.page}"
    text = report(runs, command if asked == list(seeds) else f"{command} --seeds {' '.join(map(str, asked))}")
    publish(
        Path(file).with_name("results") / f"{arguments.page}.md",
        f"{text}\n{arguments.note}\n" if arguments.note else text,
    )
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
