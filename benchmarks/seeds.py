"""A benchmark that is the same whole run for several seeds, and a table of them."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

SEEDS = [0, 1, 2]


class Run(Protocol):
    """What one seed gave."""

    @property
    def held(self) -> bool:
        """Whether it met all bars."""
        ...


R = TypeVar("R", bound=Run)


def measure_seeds(
    file: str, doc: str, run: Callable[[int, Path], R], report: Callable[[Sequence[R], str], str]
) -> None:
    """Run each seed, write ``results/NAME.md`` and end the program: with 1 where a seed misses a bar.

    Args:
        file: the benchmark's own, ``__file__``.
        report: makes the table, of the runs and the command that made them.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    seeds = parser.parse_args().seeds
    with tempfile.TemporaryDirectory() as scratch:
        runs = [run(seed, Path(scratch)) for seed in seeds]
    name = Path(file).stem
    command = f"python benchmarks/{name}.py"
    text = report(runs, command if seeds == SEEDS else f"{command} --seeds {' '.join(map(str, seeds))}")
    Path(file).with_name("results").joinpath(f"{name}.md").write_text(text)
    sys.stdout.write(text)
    sys.exit(0 if all(one.held for one in runs) else 1)
