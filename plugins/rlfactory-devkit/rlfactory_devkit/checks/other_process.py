"""Plays the same plugin in a process of its own, which gets only what a run's worker gets.

Run as ``python -m rlfactory_devkit.checks.other_process``: it reads a pickled `Request` from its standard input,
and writes its `OtherProcessResult` to the standard output.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

from rlfactory_core.config import RunConfig
from rlfactory_core.plugins import Fingerprint, Registry
from rlfactory_core.runner import TaskBench, oracle
from rlfactory_core.types import Sample

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
    played: bytes = b""  # a pickle of the oracle's episodes on the request's samples; empty if there are none
    error: str = ""  # why the task could not be made or played, or why the samples do not pickle


def play_in_other_process(
    config: RunConfig, fingerprints: Sequence[Fingerprint], samples: Sequence[Sample], deadline_s: float
) -> OtherProcessResult:
    """Start the process, with another hash seed than this one, and wait for its result."""
    try:
        data, reason = pickle.dumps(tuple(samples)), ""
    except Exception as error:  # noqa: BLE001 - the boundary to what a task puts into its samples
        data, reason = b"", f"a sample does not pickle: {type(error).__name__}: {error}"
    paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
    hashing = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    try:
        done = subprocess.run(  # noqa: S603
            [sys.executable, "-m", __name__],
            env={**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": hashing},
            input=pickle.dumps(Request(config, tuple(fingerprints), data, deadline_s)),
            capture_output=True,
            timeout=deadline_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return OtherProcessResult({}, error=f"it does not finish:\nno answer within {deadline_s:g} s")
    if not done.stdout:
        wrote = done.stderr.decode(errors="replace")
        return OtherProcessResult({}, error=f"it does not finish:\n{wrote[-_SHOWN:].strip()}")
    digests, played, problem = pickle.loads(done.stdout)  # noqa: S301 - of our own process
    return OtherProcessResult(digests, played, reason or problem)


def digest(sample: Sample) -> str:
    """A digest of the parts of a sample that a run uses: the id, the messages and the answer."""
    answer = sorted(map(repr, sample.answer)) if isinstance(sample.answer, (set, frozenset)) else sample.answer
    messages = [(message.role, message.content) for message in sample.messages]
    return blake2b(repr((sample.id, messages, answer)).encode(errors="replace"), digest_size=16).hexdigest()


def _played(request: Request) -> tuple[dict[str, list[str]], bytes, str]:
    """The fields of `OtherProcessResult`, which is a class of another module here."""
    Registry().load_for_worker(request.fingerprints)
    bench = TaskBench(request.config.plugin, [request.config.model_dump(mode="json")])
    digests = {split: [digest(sample) for sample in bench.rows(split)] for split in ("train", "eval")}
    if not request.samples:
        return digests, b"", ""
    try:
        samples = pickle.loads(request.samples)  # noqa: S301
        with bench:
            return digests, pickle.dumps(bench.play(oracle(bench.task), samples, deadline_s=request.deadline_s)), ""
    except Exception as error:  # noqa: BLE001 - the boundary to the task's code
        return digests, b"", f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    with os.fdopen(os.dup(1), "wb") as result:
        os.dup2(2, 1)  # what the task prints is not a part of the result
        result.write(pickle.dumps(_played(pickle.load(sys.stdin.buffer))))  # noqa: S301 - of our parent process
    sys.stderr.flush()
    os._exit(0)  # do not wait for the task's threads; the check `close` reports those that do not end
