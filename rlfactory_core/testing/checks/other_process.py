"""Plays the same plugin in a process of its own, which gets only what a run's worker gets.

Run as ``python -m rlfactory_core.testing.checks.other_process FOLDER``: it reads ``request.pickle`` there and writes
``answer.pickle``.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from rlfactory_core.config import RunConfig
from rlfactory_core.plugins.fingerprint import Fingerprint
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.testing.bench import TaskBench
from rlfactory_core.testing.policies import oracle
from rlfactory_core.types import Sample, Trajectory

_SHOWN = 1500  # last characters of a failed process's standard error


@dataclass(frozen=True, slots=True)
class Request:
    """What is sent to the process: the configuration, the plugins' fingerprints, and samples."""

    config: RunConfig
    fingerprints: tuple[Fingerprint, ...]
    samples: bytes  # a pickle of its own, which can be read once the plugin is loaded; empty if they do not pickle
    deadline_s: float


@dataclass(frozen=True, slots=True)
class OtherProcessResult:
    """What the process found."""

    digests: dict[str, list[str]]  # of the samples, by split; empty if the task cannot be made in the process
    played: tuple[Trajectory, ...] = ()  # the oracle's episodes on the request's samples
    error: str = ""  # why the task could not be made or played, or why the samples do not pickle


def play_in_other_process(
    config: RunConfig, fingerprints: Sequence[Fingerprint], samples: Sequence[Sample], deadline_s: float
) -> OtherProcessResult:
    """Start the process, with another hash seed than this one, and wait for its result."""
    try:
        data, reason = pickle.dumps(tuple(samples)), ""
    except Exception as error:  # noqa: BLE001 - the boundary to what a task puts into its samples
        data, reason = b"", f"a sample does not pickle: {type(error).__name__}: {error}"
    with tempfile.TemporaryDirectory(prefix="rlfactory-check-") as name:
        folder = Path(name)
        (folder / "request.pickle").write_bytes(pickle.dumps(Request(config, tuple(fingerprints), data, deadline_s)))
        wrote = _run([sys.executable, "-m", __name__, name], deadline_s)
        answer = folder / "answer.pickle"
        if not answer.exists():
            return OtherProcessResult({}, error=f"it does not finish:\n{wrote[-_SHOWN:].strip()}")
        digests, played, error_there = pickle.loads(answer.read_bytes())  # noqa: S301 - of our own process
        trajectories = pickle.loads(played) if played else ()  # noqa: S301
        return OtherProcessResult(digests, trajectories, reason or error_there)


def _run(command: Sequence[str], deadline_s: float) -> str:
    """The process's standard error, or a sentence that it took too long."""
    paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
    hashing = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": hashing}
    try:
        done = subprocess.run(  # noqa: S603
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=deadline_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {deadline_s:g} s"
    return done.stderr.decode(errors="replace")


def digest(sample: Sample) -> str:
    """A digest of the parts of a sample that a run uses: the id, the messages and the answer."""
    answer = sorted(map(repr, sample.answer)) if isinstance(sample.answer, (set, frozenset)) else sample.answer
    said = [(message.role, message.content) for message in sample.messages]
    return blake2b(repr((sample.id, said, answer)).encode(errors="replace"), digest_size=16).hexdigest()


def main(folder: Path) -> None:
    """What the process does."""
    request: Request = pickle.loads((folder / "request.pickle").read_bytes())  # noqa: S301 - written by our parent process
    Registry().load_for_worker(request.fingerprints)
    bench = TaskBench(request.config.plugin, [request.config.model_dump(mode="json")])
    digests = {split: [digest(sample) for sample in bench.rows(split)] for split in ("train", "eval")}
    played, error = b"", ""
    try:
        if request.samples:
            samples = pickle.loads(request.samples)  # noqa: S301
            with bench:
                played = pickle.dumps(tuple(bench.play(oracle(bench.task), samples, deadline_s=request.deadline_s)))
    except Exception as failure:  # noqa: BLE001 - the boundary to the task's code
        error = f"{type(failure).__name__}: {failure}"
    part = folder / "answer.part"
    part.write_bytes(pickle.dumps((digests, played, error)))
    part.rename(folder / "answer.pickle")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    sys.stderr.flush()
    os._exit(0)  # do not wait for the task's threads; the check `close` reports those that do not end
