"""The file through which a run finds the server of ``rlfactory judge serve``."""

from __future__ import annotations

import json
import os
import socket
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from rlfactory_core.cache import cache_root
from rlfactory_core.errors import UsageError

_START = "Start the server with `rlfactory judge serve --model MODEL`, or give the judge an address with `url`."
_START_FIELD = 19  # of /proc/PID/stat, counted behind the program's name

Url = Annotated[str, Field(pattern="^https?://")]


@dataclass(frozen=True, slots=True)
class EndpointFile:
    """A judge's addresses, and the processes that must be alive."""

    model: str  # the id that requests name
    urls: Annotated[tuple[Url, ...], Field(min_length=1)]  # each up to and with /v1
    pids: tuple[int, ...] = ()  # of `judge serve`, on `host`; none: not checked
    host: str = field(default_factory=socket.gethostname)
    started: float = field(default_factory=time.time)  # Unix time, seconds
    births: tuple[str, ...] = ()  # start times of `pids` in kernel ticks, because process ids are reused


_FORMAT = TypeAdapter(EndpointFile)


def default_endpoints() -> Path:
    """The default file of ``judge serve`` and of runs."""
    return cache_root() / "judge" / "endpoints.json"


def write_endpoints(path: Path, file: EndpointFile) -> None:
    """Write the file atomically, so that no reader sees a partial file.

    Raises:
        UsageError: it cannot be written.
    """
    births = file.births or tuple(_birth(pid) for pid in file.pids)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            temporary = Path(folder) / path.name
            temporary.touch(mode=0o600)  # others need not know where the judge is
            temporary.write_text(json.dumps({**asdict(file), "births": births}, indent=2) + "\n", encoding="utf-8")
            temporary.replace(path)
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
    if file.host == socket.gethostname():
        births = file.births or ("",) * len(file.pids)
        for pid, birth in zip(file.pids, births, strict=False):
            if not _is_alive(pid, birth):
                raise UsageError(
                    f"The endpoint file {path} is left over: process {pid}, which started the judge's server, has "
                    f"ended. {_START}"
                )
    return file


def remove_endpoints(path: Path, pid: int) -> None:
    """Remove the file if process ``pid`` wrote it."""
    with suppress(UsageError, OSError):
        if pid in _parse(path).pids:
            path.unlink()


def _parse(path: Path) -> EndpointFile:
    try:
        return _FORMAT.validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"No judge is being served: there is no endpoint file {path}. {_START}") from None
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, one['loc'])) or 'file'}: {one['msg']}" for one in error.errors())
        raise UsageError(
            f"The endpoint file {path} is damaged ({wrong}). Expected a JSON object with model and urls, as "
            f"`rlfactory judge serve` writes it. Remove it. {_START}"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The endpoint file {path} cannot be read: {error}. {_START}") from error


def _is_alive(pid: int, birth: str) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # another user's process, which is alive
    return not birth or _birth(pid) == birth


def _birth(pid: int) -> str:
    """A process's start in kernel ticks since boot; empty if unknown."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[_START_FIELD]
