"""The file through which a run finds the servers of ``rlfactory judge serve``."""

from __future__ import annotations

import json
import os
import socket
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rlfactory_core.cache import cache_root
from rlfactory_core.errors import UsageError

_START = "Start the servers with `rlfactory judge serve --model MODEL`, or give the judge an address with `url`."
_START_FIELD = 19  # of /proc/PID/stat, counted behind the program's name


@dataclass(frozen=True, slots=True)
class EndpointFile:
    """A judge's addresses, and the processes that must be alive."""

    model: str  # the id that requests name
    urls: tuple[str, ...]  # one a replica, each up to and with /v1
    pids: tuple[int, ...] = ()  # of the supervisor, on `host`; none: not checked
    host: str = field(default_factory=socket.gethostname)
    started: float = field(default_factory=time.time)  # Unix time, seconds
    births: tuple[str, ...] = ()  # start times of `pids` in kernel ticks, because process ids are reused


def default_endpoints() -> Path:
    """The default file of ``judge serve`` and of runs."""
    return cache_root() / "judge" / "endpoints.json"


def write_endpoints(path: Path, file: EndpointFile) -> None:
    """Write the file atomically, so that no reader sees a partial file.

    Raises:
        UsageError: it cannot be written.
    """
    births = file.births or tuple(_birth(pid) for pid in file.pids)
    text = json.dumps({**asdict(file), "births": births}, indent=2)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as temporary:
                temporary.write(text + "\n")
            os.replace(name, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(name)
            raise
    except OSError as error:
        raise UsageError(
            f"The endpoint file {path} cannot be written ({error.strerror}). Give another one with --endpoints."
        ) from error


def read_endpoints(path: Path) -> EndpointFile:
    """Read the running servers.

    Raises:
        UsageError: the file is missing or damaged, or the process that started the servers has ended.
    """
    file = _parse(path)
    if gone := _gone(file):
        raise UsageError(
            f"The endpoint file {path} is left over: process {gone}, which started the judge's servers, has ended. "
            f"{_START}"
        )
    return file


def remove_endpoints(path: Path, pid: int) -> None:
    """Remove the file if process ``pid`` wrote it."""
    with suppress(UsageError, OSError):
        if pid in _parse(path).pids:
            path.unlink()


def _parse(path: Path) -> EndpointFile:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"No judge is being served: there is no endpoint file {path}. {_START}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The endpoint file {path} cannot be read: {error}. {_START}") from error
    try:
        return _from_json(json.loads(text))
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"The endpoint file {path} is damaged ({type(error).__name__}: {error}). Expected a JSON object with model "
            f"and urls, as `rlfactory judge serve` writes it. Remove it. {_START}"
        ) from error


def _from_json(data: Any) -> EndpointFile:
    if not isinstance(data, dict):
        raise TypeError(f"got a {type(data).__name__}")
    model, urls = data["model"], data["urls"]
    if not isinstance(model, str) or not isinstance(urls, list) or not urls:
        raise TypeError("model has to be text, and urls a list that is not empty")
    if not all(isinstance(url, str) and url.startswith(("http://", "https://")) for url in urls):
        raise ValueError(f"urls have to begin with http:// or https://, got {urls}")
    return EndpointFile(
        model,
        tuple(urls),
        tuple(int(pid) for pid in data.get("pids", ())),
        str(data.get("host", "")),
        float(data.get("started", 0.0)),
        tuple(str(birth) for birth in data.get("births", ())),
    )


def _gone(file: EndpointFile) -> int | None:
    """A process that should be alive and is not; None if all are, or run on another machine."""
    if file.host != socket.gethostname():
        return None
    births = file.births or ("",) * len(file.pids)
    for pid, birth in zip(file.pids, births, strict=False):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return pid
        except PermissionError:
            pass  # another user's process, which is alive
        if birth and _birth(pid) != birth:
            return pid
    return None


def _birth(pid: int) -> str:
    """A process's start in kernel ticks since boot; empty if unknown."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[_START_FIELD]
