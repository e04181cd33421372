"""A new run on one page: the command that it stands for is always shown, and checked before it is started."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from urllib.parse import quote

import yaml
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from rlfactory_core import RunConfig
from rlfactory_core.errors import UsageError
from rlfactory_core.plugins.options import Option, section_options, value_text
from rlfactory_ui import processes
from rlfactory_ui.pages import OPTIONS, first, page, part, posted, site_of
from rlfactory_ui.routes.compare import flat
from rlfactory_ui.routes.draft import Draft

FIRST_KEYS = (  # of the configuration; the others are below "all keys"
    *("train.steps", "train.prompts_per_step", "train.group_size", "train.lr", "train.advantage", "train.aggregation"),
    *("eval.every", "eval.limit"),
)
SECTIONS = ("train", "train.lora", "rollout", "tools", "chat", "agent", "eval", "checkpoint")
ELSEWHERE = ("tools.sources", "tools.disabled", "tools.overrides", "agent.command")  # what other parts of the page set


async def new_run(request: Request) -> Response:
    site = site_of(request)
    known = (await site.commands.run("plugins", "list", "--tasks", "--json")).json()
    start = request.query_params.get("from", "")
    keys = _keys()
    return page(
        request,
        "new.jinja",
        plugins=known,
        keys=keys,
        sections={name: [each for each in keys[name] if each.key not in FIRST_KEYS] for name in SECTIONS},
        first_keys=[each for name in ("train", "eval") for each in keys[name] if each.key in FIRST_KEYS],
        runs=[entry.name for entry in site.catalogue.entries()][:50],
        given={"config": str(site.catalogue.folder(start).config)} if start else dict(request.query_params),
        labels=OPTIONS,
        place=site.catalogue.runs,
    )


def _keys() -> Mapping[str, Sequence[Option]]:
    """The keys of a run's configuration, by their sections."""
    found = defaultdict(list)
    for option in section_options(RunConfig):
        if option.key not in (*SECTIONS, *ELSEWHERE):
            found[option.key.rpartition(".")[0]].append(option)
    return found


async def options(request: Request) -> Response:
    """The task's own options, from its ``Config``."""
    return await _own_options(request, "plugin", "task")


async def engine(request: Request) -> Response:
    """The keys of an engine that a plugin brings."""
    return await _own_options(request, "engine", "config_section")


async def _own_options(request: Request, field: str, kind: str) -> Response:
    name = first(await posted(request), field)
    if not name or name == "local":
        return part("options.jinja", item=None)
    about = (await site_of(request).commands.run("plugins", "info", name, "--json")).json()
    items = [item for item in about["gives"] if item["kind"] == kind]
    if not items and kind == "task":
        raise UsageError(f"The plugin {name} gives no task. It can be used for its tools, rewards or formats.")
    what, prefix = ("task", "task.") if kind == "task" else ("engine", f"{name}.")
    return part("options.jinja", item=next(iter(items), None), what=what, prefix=prefix)


async def preview(request: Request) -> Response:
    """The command line and the whole configuration, as ``--dry-run`` gives it, or its error."""
    site, form = site_of(request), await posted(request)
    draft = Draft.of(form, site.catalogue.runs)
    words = draft.command(site.catalogue.runs)
    outcome = await site.commands.run(*words, "--dry-run")
    whole = {} if outcome.problem else dict(flat(yaml.safe_load(outcome.out)))
    values = {f"key.{key}": value_text(value) for key, value in whole.items() if value is not None}
    return part("preview.jinja", command=shlex.join(["rlfactory", *words]), outcome=outcome, values=values)


async def begin(request: Request) -> Response:
    """Start the run, unless its configuration is refused.

    Raises:
        UsageError: the command's own error.
    """
    site, form = site_of(request), await posted(request)
    draft = Draft.of(form, site.catalogue.runs)
    words = draft.command(site.catalogue.runs)
    if problem := (await site.commands.run(*words, "--dry-run")).problem:
        raise UsageError(problem)
    processes.start(site.catalogue.runs, draft.name, words)
    place = f"/runs/{quote(draft.name)}"
    return PlainTextResponse(place) if request.headers.get("x-part") else RedirectResponse(place, 303)


ROUTES = [
    Route("/new", new_run),
    Route("/new", begin, methods=["POST"]),
    Route("/new/options", options, methods=["POST"]),
    Route("/new/engine", engine, methods=["POST"]),
    Route("/new/preview", preview, methods=["POST"]),
]
