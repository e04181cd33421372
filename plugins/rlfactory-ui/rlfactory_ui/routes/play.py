"""Talk to a run's checkpoint: a command holds the model, and the page gives it orders."""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rlfactory_core.errors import UsageError
from rlfactory_core.reporting import RunFolder
from rlfactory_ui.commands import kept_conversation
from rlfactory_ui.pages import Form, first, kept_images, page, part, posted, site_of


async def show(request: Request) -> Response:
    folder = site_of(request).catalogue.folder(request.path_params["name"])
    return page(request, "play.jinja", **_conversation(folder, kept_conversation(folder.path)))


async def order(request: Request) -> Response:
    """What a button says, and the conversation after it."""
    site = site_of(request)
    folder = site.catalogue.folder(request.path_params["name"])
    form = await posted(request)
    given = _order(form)
    if given["do"] == "stop":
        await site.commands.end_play(folder.name)
        return part("play_now.jinja", **_conversation(folder, kept_conversation(folder.path)))
    words = [word for name in ("api", "model") if (value := first(form, name)) for word in (f"--{name}", value)]
    found = await site.commands.play(folder.path, words, given)
    return part("play_now.jinja", **_conversation(folder, found), saved=given["do"] == "save")


def _conversation(folder: RunFolder, play: dict[str, Any] | None) -> dict[str, Any]:
    """What the page shows of it; the run keeps the images that it names, as those of its trajectories."""
    if play:
        folder.keep_images(json.dumps(play))
    return {"run": folder.name, "play": play, "images": kept_images(folder)}


def _order(form: Form) -> dict[str, Any]:
    """
    Raises:
        UsageError: a number is none.
    """
    name, _, turn = first(form, "order").partition(" ")
    found: dict[str, Any] = {"do": name}
    if name in ("edit", "back"):
        found["turn"] = _number(turn)
    if name == "edit":
        found["text"] = form.get(f"turn.{turn}", [""])[0].replace("\r\n", "\n")
    if name in ("ask", "say"):
        found["text"] = first(form, "question")
    if name == "sample" and (sample := first(form, "sample")):
        found["sample"] = sample
    if name in ("step", "go", "again") and (temperature := first(form, "temperature")):
        found["temperature"] = _number(temperature)
    return found


def _number(text: str) -> float:
    try:
        return int(text) if text.isdecimal() else float(text)
    except ValueError:
        raise UsageError(f"Got '{text}', expected a number.") from None


ROUTES = [
    Route("/runs/{name}/play", show),
    Route("/runs/{name}/play", order, methods=["POST"]),
]
