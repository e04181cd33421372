"""The file through which a run finds the server of ``rlfactory judge serve``."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from rlfactory_core.cache import cache_root, write_atomically
from rlfactory_core.errors import UsageError

_START = "Start the server with `rlfactory judge serve --model MODEL`, or give the judge an address with `url`."

Url = Annotated[str, Field(pattern="^https?://")]


@dataclass(frozen=True, slots=True)
class EndpointFile:
    """A judge's addresses, and the process that wrote the file."""

    model: str  # the id that requests name
    urls: Annotated[tuple[Url, ...], Field(min_length=1)]  # each up to and with /v1
    pid: int | None = None  # of `judge serve`; None: written by hand


def default_endpoints() -> Path:
    """The default file of ``judge serve`` and of runs."""
    return cache_root() / "judge" / "endpoints.json"


def write_endpoints(path: Path, file: EndpointFile) -> None:
    """Write the file atomically, readable by its owner alone. Raises `UsageError` where it cannot be written."""
    try:
        write_atomically(path, (json.dumps(asdict(file), indent=2) + "\n").encode())
    except OSError as error:
        raise UsageError(
            f"The endpoint file {path} cannot be written ({error.strerror}). Give another one with --endpoints."
        ) from error


def read_endpoints(path: Path) -> EndpointFile:
    """Read the file; raises `UsageError` if it is missing or damaged."""
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


def remove_endpoints(path: Path, pid: int) -> None:
    """Remove the file if process ``pid`` wrote it."""
    with suppress(UsageError, OSError):
        if read_endpoints(path).pid == pid:
            path.unlink()
