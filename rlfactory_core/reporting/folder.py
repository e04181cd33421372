"""The run's folder: the place of each file, and how it is written so that a crash never damages it.

Whole files are written beside their place and then renamed. ``metrics.jsonl`` grows by one synced line for each step;
a last line that a crash cut off is ignored when the file is read. Engines write checkpoints; only their place is
defined here.
"""

from __future__ import annotations

import json
import logging
import math
import os
import platform
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rlfactory_core.cache import write_atomically
from rlfactory_core.errors import CheckpointError, ConfigError, DataError, UsageError, close_names, nearest
from rlfactory_core.images import image_path, images_in
from rlfactory_core.reporting.trajectories import StoredTrajectory, json_text
from rlfactory_core.settings import dump_yaml, load_yaml
from rlfactory_core.types import Trajectory

_log = logging.getLogger(__name__)
RUNS = Path("runs")  # the default folder of runs, relative to the working directory
MAX_IMAGE_BYTES = 512 << 20  # of all images that a run keeps
_WHOLE, _END = "# the whole configuration of the run, up to the line '# end'", "# end"


class RunFolder:
    """One run's files.

    Args:
        path: an existing folder; use `create` or `open` instead of the constructor.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        self.plugins_lock = path / "plugins.lock.json"
        self.data_lock = path / "data.lock.json"
        self.metrics = path / "metrics.jsonl"
        self.summary = path / "summary.json"
        self.report = path / "report.html"
        self.trajectories = path / "trajectories"
        self.images = self.trajectories / "images"  # named by their hashes
        self._images_full = False
        self.checkpoints = path / "checkpoints"
        self.logs = path / "logs"  # of an engine's processes, if one of them has failed

    @property
    def name(self) -> str:
        return self.path.resolve().name

    @classmethod
    def create(cls, plugin: str, out: Path | None = None, *, root: Path = RUNS) -> RunFolder:
        """A new, empty folder: ``out``, or ``root/<YYYYmmdd-HHMMSS>-<plugin>``, with a number added if it exists.

        Raises:
            UsageError: ``out`` is not empty, or the folder cannot be made.
        """
        try:
            path = _fresh(plugin, root) if out is None else _given(out)
            folder = cls(path)
            folder.trajectories.mkdir()
            folder.checkpoints.mkdir()
        except OSError as error:
            raise UsageError(
                f"cannot make a run folder in {out or root}: {error.strerror}. Choose another place with --out."
            ) from error
        return folder

    @classmethod
    def open(cls, run: str | Path, *, root: Path = RUNS) -> RunFolder:
        """An existing run, by its path or by its name under ``root``.

        Raises:
            UsageError: there is no such run; the message has the nearest name, or the newest ones.
        """
        for path in (Path(run), root / run):
            if _is_run(path):
                return cls(path)
        known = sorted((path.name for path in root.iterdir() if _is_run(path)), reverse=True) if root.is_dir() else []
        why = "it is a folder, but holds no config.yaml" if Path(run).is_dir() else "there is no such folder"
        newest = ", ".join(known[:3])
        hint = f"The newest under {root}/: {newest}." if newest else f"There are none under {root}/ yet."
        if close_names(Path(run).name, known):
            hint = nearest(Path(run).name, known)
        raise UsageError(f"no run at '{run}': {why}. Expected a run's folder, or its name under {root}/. {hint}")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Within the context, no other process may write to the run; the lock ends with this process, however it ends.

        Files that a killed process left half-written are removed.

        Raises:
            UsageError: another process writes to the run.
            CheckpointError: nothing can be written there.
        """
        import fcntl  # not on Windows, where runs can be read

        path = self.path / ".lock"
        with _writing(path):
            file = path.open("a+b", buffering=0)
        with file as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = path.read_text(encoding="utf-8").strip() or "another process"
                raise UsageError(
                    f"{self.path} is in use by {holder}. Wait until it has ended, or stop it: two processes would mix "
                    "their checkpoints."
                ) from None
            except OSError:
                pass  # a file system without locks
            with _writing(path):
                lock.truncate(0)
                own = f"process {os.getpid()} on {platform.node()}, since {time.strftime('%Y-%m-%d %H:%M:%S')}\n"
                lock.write(own.encode())
            for pattern in (".*.tmp", "trajectories/.*.tmp", "checkpoints/.*.partial"):
                for stale in self.path.glob(pattern):
                    shutil.rmtree(stale) if stale.is_dir() and not stale.is_symlink() else stale.unlink()
            yield

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Save the resolved configuration (plain data) as YAML."""
        write_atomic(self.config, f"{_WHOLE}\n{dump_yaml(config)}{_END}\n")

    def read_config(self) -> dict[str, Any]:
        """The resolved configuration as plain data.

        Raises:
            ConfigError: the file is missing, not YAML, or damaged.
        """
        data = load_yaml(self.config)
        text = self.config.read_text(encoding="utf-8").strip()
        if not data or (text.startswith(_WHOLE) and not text.endswith(_END)):
            raise ConfigError(
                f"{self.config} is damaged: it ends too early. Restore the file, or begin a new run from what is "
                f"trained so far: --model {self.checkpoints / 'latest'}"
            )
        return data

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        write_json(self.summary, summary)

    def read_summary(self) -> dict[str, Any]:
        """``summary.json``; empty if the run has not ended."""
        return read_json(self.summary)

    def append_metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add one line; NaN and infinities, which JSON lacks, become null."""
        with _writing(self.metrics), self.metrics.open("a", encoding="utf-8") as file:
            file.write(json_text({"step": step, **_finite(metrics)}) + "\n")
            file.flush()
            os.fsync(file.fileno())  # before a checkpoint of this step is named

    def add_metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add metrics to the line of a step."""
        rows = [{**row, **_finite(metrics)} if row.get("step") == step else row for row in self.read_metrics()]
        write_atomic(self.metrics, "".join(json_text(row) + "\n" for row in rows))

    def read_metrics(self) -> list[dict[str, float | None]]:
        """All lines in order; a last line that a crash cut off is left out.

        Raises:
            DataError: another line is broken.
        """
        rows: list[dict[str, float | None]] = []
        lines = self.metrics.read_bytes().split(b"\n") if self.metrics.exists() else []
        for number, line in enumerate(lines, 1):
            try:
                rows += [json.loads(line)] if line else []
            except ValueError as error:
                if number < len(lines):  # else without a newline: it was cut off while it was written
                    raise DataError(
                        f"{self.metrics}, line {number}: not JSON ({error}). If the file is damaged, delete this line "
                        "and those below it."
                    ) from error
        return rows

    def cut_after(self, step: int) -> int:
        """Delete the metrics and trajectories of the steps after ``step``, which a resumed run will do again.

        Returns:
            The number of steps up to ``step`` whose metrics are missing, because a file was damaged.
        """
        rows = [row for row in self.read_metrics() if (row.get("step") or 0) <= step]
        if self.metrics.exists():
            write_atomic(self.metrics, "".join(json_text(row) + "\n" for row in rows))
        for later in self.trajectory_steps():
            if later > step:
                self.trajectory_file(later).unlink()
        return step - len({row["step"] for row in rows if row.get("step")})

    def trajectory_file(self, step: int | str) -> Path:
        """The file of a step, or of an evaluation by name: ``eval-before``, ``eval-after``."""
        return self.trajectories / (f"step-{step:06d}.jsonl" if isinstance(step, int) else f"{step}.jsonl")

    def trajectory_steps(self) -> list[int]:
        """The steps whose trajectories are saved, in order."""
        found = (re.fullmatch(r"step-(\d+)\.jsonl", path.name) for path in self.trajectories.glob("step-*.jsonl"))
        return sorted(int(match[1]) for match in found if match)

    def trajectory_names(self) -> list[int | str]:
        """All files that are saved, for `read_trajectories`: evaluations before, steps, evaluations after, controls."""
        names = sorted(path.stem for path in self.trajectories.glob("*.jsonl") if not path.stem.startswith("step-"))
        before = [name for name in names if name.startswith("eval-before")]
        after = [name for name in names if name.startswith("eval-") and name not in before]
        return [*before, *self.trajectory_steps(), *after, *(name for name in names if name.startswith("control-"))]

    def count_trajectories(self, step: int | str) -> int:
        """The number of lines of a file."""
        with self.trajectory_file(step).open("rb") as file:
            return sum(1 for _ in file)

    def attempt_files(self) -> list[int | str]:
        """The files of the attempts at training; if there are none, those of the evaluation that the folder holds."""
        evaluations = [name for name in map(str, self.trajectory_names()) if name.startswith("eval-")]
        after = [name for name in evaluations if name.startswith("eval-after")]
        return [*self.trajectory_steps()] or [*(after or evaluations)]

    def write_trajectories(
        self, step: int | str, trajectories: Iterable[Trajectory], decode: Callable[[Sequence[int]], str]
    ) -> Path:
        """Save trajectories with their texts, for which ``decode`` is the chat format's; returns the file."""
        return self.write_stored(step, (StoredTrajectory.of(item, decode) for item in trajectories))

    def write_stored(self, step: int | str, trajectories: Iterable[StoredTrajectory]) -> Path:
        """Save trajectories that already have their texts, and the images that they name; returns the file."""
        path, saved = self.trajectory_file(step), list(trajectories)
        text = "".join(f"{each.to_line()}\n" for each in saved)
        seen = {digest for each in saved for turn in each.trajectory.turns for digest in turn.images}
        self.keep_images(text, seen)
        write_atomic(path, text)
        return path

    def link_images(self, other: RunFolder) -> None:
        """Take over the images of another run, without a copy of their data where the file system can."""
        for image in other.images.glob("*.png"):
            self.images.mkdir(exist_ok=True)
            if (there := self.images / image.name).exists():
                continue
            try:
                os.link(image, there)
            except OSError:  # another file system
                shutil.copyfile(image, there)

    def keep_images(self, text: str, digests: Iterable[str] = ()) -> None:
        """Copy the images that a text or a hash names and that are missing here; at most `MAX_IMAGE_BYTES` in all."""
        files = {image.path for image in images_in(text)} | set(map(image_path, digests))
        new = [file for file in sorted(files) if not (self.images / file.name).exists()]
        if not new:
            return
        used = sum(file.stat().st_size for file in self.images.glob("*.png"))
        for file in new:
            data = file.read_bytes()
            used += len(data)
            if used > MAX_IMAGE_BYTES:
                if not self._images_full:
                    _log.warning(
                        "%s has %d MiB of images, which is the most that a run keeps: trajectories still name further "
                        "ones.",
                        self.images,
                        MAX_IMAGE_BYTES >> 20,
                    )
                self._images_full = True
                return
            write_atomically(self.images / file.name, data)

    def read_trajectories(self, step: int | str) -> Iterator[StoredTrajectory]:
        """Yields the saved trajectories of a step or evaluation; none if there is no file.

        Raises:
            DataError: a line is not a trajectory, or has a newer format.
        """
        path = self.trajectory_file(step)
        if not path.exists():
            return
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                try:
                    yield StoredTrajectory.from_line(line)
                except (ValueError, KeyError, TypeError) as error:
                    raise DataError(f"{path}, line {number}: not a trajectory ({error})") from error

    def read_trajectory(self, name: str, number: int) -> StoredTrajectory:
        """One trajectory.

        Args:
            name: of its file, such as ``step-000010``.
            number: its place in the file, from 0.

        Raises:
            UsageError: there is no such file or trajectory.
            DataError: it cannot be read.
        """
        path = self.trajectory_file(name)
        if path.parent != self.trajectories or not path.is_file():
            raise UsageError(f"{self.name} has no trajectories called '{name}'.")
        count = 0
        for count, stored in enumerate(self.read_trajectories(name), 1):
            if count > number:
                return stored
        raise UsageError(f"{name} has {count} trajectories; there is no number {number}.")


def write_atomic(path: Path, text: str) -> None:
    """Write a file that is always either the old or the new one, also after a crash.

    Raises:
        CheckpointError: it cannot be written (disk full, no permission); the old file is intact.
    """
    with _writing(path):
        # A model can write half a surrogate pair; escaped, it stays valid JSON.
        write_atomically(path, text.encode("utf-8", errors="backslashreplace"))


def replace_link(link: Path, target: str) -> None:
    """Make ``link`` a symbolic link to a folder beside it; at any moment it is either the old or the new link."""
    fresh = link.with_name(f".{link.name}.partial")
    with suppress(FileNotFoundError):
        fresh.unlink()
    fresh.symlink_to(target, target_is_directory=True)
    os.replace(fresh, link)


def _finite(metrics: Mapping[str, float]) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in metrics.items() if name != "step"}


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CheckpointError(
            f"cannot write {path}: {error.strerror or error}. "
            "Make room or allow writing there, then go on with --resume."
        ) from error


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write a file of JSON for people and programs; raises as `write_atomic`."""
    write_atomic(path, json_text(data, indent=2) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file; empty if there is no file. Raises a `DataError` if it is not JSON."""
    if not path.exists():
        return {}
    try:
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{path} is not JSON: {error}") from error
    return data


def _is_run(path: Path) -> bool:
    return (path / "config.yaml").is_file() or (path / "metrics.jsonl").is_file()


def _fresh(plugin: str, root: Path) -> Path:
    stem = f"{time.strftime('%Y%m%d-%H%M%S')}-{re.sub(r'[^A-Za-z0-9._-]+', '-', plugin).strip('-.') or 'run'}"
    root.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        path = root / (stem if number == 1 else f"{stem}-{number}")
        try:
            path.mkdir()
        except FileExistsError:  # made by a run that started in the same second
            number += 1
        else:
            return path


def _given(out: Path) -> Path:
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        raise UsageError(f"{out} is not empty. Choose another --out, or go on with that run: --resume {out}")
    return out
