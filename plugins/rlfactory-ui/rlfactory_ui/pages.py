"""What all pages share: the state of the server, and how a template becomes a response."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote

from starlette.responses import HTMLResponse, Response

from rlfactory_core.reporting import KeptImages, RunFolder, page_environment
from rlfactory_core.reporting.progress import count_text, seconds_text
from rlfactory_core.serving import read_body
from rlfactory_ui.access import MAX_BODY, Access
from rlfactory_ui.catalogue import Catalogue
from rlfactory_ui.commands import Commands
from rlfactory_ui.live import LiveRun

if TYPE_CHECKING:
    from jinja2 import Environment
    from starlette.requests import Request

OPTIONS = {  # of the command, each a field of the form: its name, and its label on the page
    "plugin": "Plugin",
    "agent": "Agent",
    "mcp": "MCP servers",
    "data": "Training data",
    "eval-data": "Held-out data",
    "judge": "Judge",
    "model": "Model",
    "engine": "Engine",
    "device": "Device",
    "seed": "Seed",
    "recipe": "Recipe",
    "config": "Begin from",
}
_LABELS = {**OPTIONS, "reward": "Rewards", "out": "Name of the run"}
_OPTION = re.compile(r"--([a-z-]+)\b")
STATIC = Path(__file__).parent / "static"
_RUNS_KEPT = 8  # in memory
FORM_S = 30.0  # in which a browser has to send a form
Form = dict[str, list[str]]


@dataclass(slots=True)
class Site:
    """In-memory state of one server; a restart may lose it."""

    catalogue: Catalogue
    access: Access
    commands: Commands = field(default_factory=Commands)
    live: dict[str, LiveRun] = field(default_factory=dict)  # the runs that were looked at, by name

    def run(self, name: str) -> LiveRun:
        """
        Raises:
            UsageError: there is no such run.
        """
        folder = self.catalogue.folder(name)
        found = self.live.pop(name, None) or LiveRun(folder)
        self.live[name] = found  # the last one looked at is the last
        while len(self.live) > _RUNS_KEPT:
            del self.live[next(iter(self.live))]
        return found


def site_of(request: Request) -> Site:
    site = request.app.state.site
    assert isinstance(site, Site)
    return site


def page(request: Request, template: str, status: int = 200, **values: Any) -> Response:
    """A whole page."""
    here = request.url.path
    return HTMLResponse(environment().get_template(template).render(here=here, **values), status)


def part(template: str, **values: Any) -> Response:
    """A part of a page, which takes the place of an earlier one."""
    return HTMLResponse(environment().get_template(template).render(**values))


async def posted(request: Request) -> Form:
    """The fields of a form; several values of a name stay several."""
    text = (await read_body(request, MAX_BODY, FORM_S)).decode("utf-8", "replace")
    return parse_qs(text, keep_blank_values=True, max_num_fields=2000)


def first(form: Form, name: str) -> str:
    """A field's first value without blanks at its ends; empty if it is missing."""
    return form.get(name, [""])[0].strip()


def page_words(text: str) -> str:
    """A message of the command line with the labels of this page in place of the options' names."""
    return _OPTION.sub(lambda match: f"“{_LABELS[match[1]]}”" if match[1] in _LABELS else match[0], text)


def kept_images(folder: RunFolder) -> KeptImages:
    """The images of a run; this server has each at an address of its own."""
    return KeptImages(folder, lambda digest: f"/runs/{quote(folder.name)}/images/{digest}.png")


def _json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1)


@lru_cache(maxsize=1)
def environment() -> Environment:
    """The report's templates and filters, and our own pages."""
    from jinja2 import ChoiceLoader, PackageLoader

    base = page_environment()
    assert base.loader is not None
    made = base.overlay(loader=ChoiceLoader([PackageLoader("rlfactory_ui"), base.loader]))
    filters = {"count": count_text, "duration": seconds_text, "page_words": page_words, "json_text": _json_text}
    made.filters.update({**base.filters, **filters})
    return made
