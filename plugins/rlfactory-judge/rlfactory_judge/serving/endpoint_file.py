"""The file through which a run finds the server of ``rlfactory judge serve``."""

from __future__ import annotations

import json
import os
import socket
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from rlfactory_core.cache import cache_root, write_atomically
from rlfactory_core.errors import UsageError

_START = "Start the server with `rlfactory judge serve --model MODEL`, or give the judge an address with `url`."
_START_FIELD = 19  # of /proc/PID/stat, counted behind the program's name

Url = Annotated[str, Field(pattern="^https?://")]


@dataclass(frozen=True, slots=True)
class EndpointFile:
    """A judge's addresses, and the process that must be alive."""

    model: str  # the id that requests name
    urls: Annotated[tuple[Url, ...], Field(min_length=1)]  # each up to and with /v1
    pid: int | None = None  # of `judge serve`, on `host`; None: not checked
    host: str = field(default_factory=socket.gethostname)
    birth: str = ""  # the start time of `pid` in kernel ticks, because process ids are reused


def default_endpoints() -> Path:
    """The default file of ``judge serve`` and of runs."""
    return cache_root() / "judge" / "endpoints.json"


def write_endpoints(path: Path, file: EndpointFile) -> None:
    """Write the file atomically, readable by its owner alone. Raises `UsageError` where it cannot be written."""
    if file.pid is not None and not file.birth:
        file = replace(file, birth=_birth(file.pid))
    try:
        write_atomically(path, (json.dumps(asdict(file), indent=2) + "\n").encode())
    except OSError as error:
        raise UsageError(
            f"The endpoint file {path} cannot be written ({error.strerror}). Give another one with --endpoints."
        ) from error


def read_endpoints(path: Path) -> EndpointFile:
    """Read the file; raises `UsageError` if it is missing, damaged, or left over from a process that has ended."""
    file = _parse(path)
    if file.pid is not None and file.host == socket.gethostname() and not _is_alive(file.pid, file.birth):
        raise UsageError(
            f"The endpoint file {path} is left over: process {file.pid}, which started the judge's server, has ended. "
            f"{_START}"
        )
    return file


def remove_endpoints(path: Path, pid: int) -> None:
    """Remove the file if process ``pid`` wrote it."""
    with suppress(UsageError, OSError):
        if _parse(path).pid == pid:
            path.unlink()


def _parse(path: Path) -> EndpointFile:
    try:
        return TypeAdapter(EndpointFile).validate_json(path.read_text(encoding="utf-8"))
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
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[_START_FIELD]
    except OSError:
        return ""
