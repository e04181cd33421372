"""Data that is chosen or dropped in the form of a new run: it is saved beside the runs."""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path

from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from rlfactory_core.errors import UsageError
from rlfactory_core.serving import BodyError
from rlfactory_ui.access import FILES
from rlfactory_ui.pages import site_of
from rlfactory_ui.processes import LAUNCHES

_KINDS = (".jsonl", ".parquet")


async def take(request: Request) -> Response:
    """Returns the file's place.

    Raises:
        UsageError: it is no file of data, or cannot be written.
    """
    name = request.query_params.get("name", "")
    if name != Path(name).name or name.startswith(".") or Path(name).suffix.lower() not in _KINDS:
        raise UsageError(f"Got the file '{name}', expected data as .jsonl or .parquet.")
    place = site_of(request).catalogue.runs / LAUNCHES / "data" / secrets.token_hex(4) / name  # none is overwritten
    try:
        place.parent.mkdir(parents=True)
        with place.open("wb") as file:
            async for part in request.stream():
                file.write(part)
    except ClientDisconnect as error:
        shutil.rmtree(place.parent, ignore_errors=True)
        raise BodyError(400, "The browser has gone.") from error
    except OSError as error:
        raise UsageError(f"The file cannot be saved as {place}: {error.strerror}.") from error
    return PlainTextResponse(str(place))


ROUTES = [Route(FILES, take, methods=["POST"])]
