"""The same plugin in a process of its own, which knows only what a run's worker is told.

Run as ``python -m rlfactory_core.testing.checks.elsewhere FOLDER``: it reads ``request.pickle`` there and writes
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

_SHOWN = 1500  # characters of what a process that failed wrote, from its end


@dataclass(frozen=True, slots=True)
class Request:
    """What crosses to a worker: the configuration, the plugins' fingerprints, and samples."""

    config: RunConfig
    fingerprints: tuple[Fingerprint, ...]
    samples: bytes  # pickled; only a process that has loaded the plugin can read them. Empty: they do not pickle
    deadline_s: float


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """What came back.

    Args:
        digests: of each sample, by split; none where the task cannot be made there.
        played: the oracle's episodes on the request's samples.
        error: why the task could not be made or played, or the samples do not pickle.
    """

    digests: dict[str, list[str]]
    played: tuple[Trajectory, ...] = ()
    error: str = ""


def play_elsewhere(
    config: RunConfig, fingerprints: Sequence[Fingerprint], samples: Sequence[Sample], deadline_s: float
) -> Elsewhere:
    """Start the process, with another order of hashes than here, and wait for it."""
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
            return Elsewhere({}, error=f"it does not come to an end:\n{wrote[-_SHOWN:].strip()}")
        digests, played, error_there = pickle.loads(answer.read_bytes())  # noqa: S301 - of our own process
        trajectories = pickle.loads(played) if played else ()  # noqa: S301
        return Elsewhere(digests, trajectories, reason or error_there)


def _run(command: Sequence[str], deadline_s: float) -> str:
    """What it wrote on its standard error, or that it took too long."""
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
    """Of what a run makes of a sample: the id, what is asked, and what is accepted."""
    answer = sorted(map(repr, sample.answer)) if isinstance(sample.answer, (set, frozenset)) else sample.answer
    said = [(message.role, message.content) for message in sample.messages]
    return blake2b(repr((sample.id, said, answer)).encode(errors="replace"), digest_size=16).hexdigest()


def main(folder: Path) -> None:
    """The process itself."""
    request: Request = pickle.loads((folder / "request.pickle").read_bytes())  # noqa: S301 - of who started us
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
    os._exit(0)  # a thread of the task's that does not end is the check `close`'s affair
