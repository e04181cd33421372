"""A new run on one page: each part is checked by the command that it stands for, and the command is always shown."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from urllib.parse import quote

import yaml
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from rlfactory_core.algo.settings import CheckpointConfig, EvalConfig, LoraConfig, TrainConfig
from rlfactory_core.chat.settings import ChatConfig
from rlfactory_core.errors import UsageError
from rlfactory_core.gateway.settings import AgentConfig
from rlfactory_core.plugins.options import value_text
from rlfactory_core.rollout.settings import RolloutConfig
from rlfactory_core.settings import Section
from rlfactory_core.tasks.settings import DataColumns
from rlfactory_core.tools.settings import ToolLimits
from rlfactory_ui import processes
from rlfactory_ui.command_runner import Outcome
from rlfactory_ui.pages import page, part, site_of
from rlfactory_ui.routes.compare import flat
from rlfactory_ui.routes.draft import Draft, Field, described, words_of
from rlfactory_ui.routes.forms import first, posted
from rlfactory_ui.words import OPTIONS

CHECK_S = 600.0
FIRST_KEYS: dict[str, tuple[type[Section], tuple[str, ...]]] = {  # the keys of the training that matter first
    "train": (TrainConfig, ("steps", "prompts_per_step", "group_size", "lr", "advantage", "aggregation")),
    "eval": (EvalConfig, ("every", "limit")),
}
SECTIONS: dict[str, type[Section]] = {  # all others
    "train": TrainConfig,
    "train.lora": LoraConfig,
    "rollout": RolloutConfig,
    "tools": ToolLimits,
    "chat": ChatConfig,
    "agent": AgentConfig,
    "eval": EvalConfig,
    "checkpoint": CheckpointConfig,
}


async def new_run(request: Request) -> Response:
    site = site_of(request)
    known = (await site.commands.run("plugins", "list", "--tasks", "--json")).json()
    fields = [described(f"{section}.{key}", cls, key) for section, (cls, keys) in FIRST_KEYS.items() for key in keys]
    runs = [entry.name for entry in site.catalogue.entries()][:50]
    start = request.query_params.get("from", "")
    given = {"config": str(site.catalogue.folder(start).config)} if start else dict(request.query_params)
    columns = [described(f"data.columns.{key}", DataColumns, key) for key in DataColumns.model_fields]
    return page(
        request,
        "new.jinja",
        plugins=known,
        fields=fields,
        sections={name: _others(name, cls) for name, cls in SECTIONS.items()},
        columns=columns,
        runs=runs,
        given=given,
        labels=OPTIONS,
        place=site.catalogue.runs,
    )


def _others(name: str, section: type[Section]) -> list[Field]:
    """The keys of a section that are not among the first, and not sections of their own."""
    shown = FIRST_KEYS[name][1] if name in FIRST_KEYS else ()
    keys = [key for key in section.model_fields if key not in shown and f"{name}.{key}" not in SECTIONS]
    return [described(f"{name}.{key}", section, key) for key in keys]


async def options(request: Request) -> Response:
    """The task's own options, from its ``Config``."""
    plugin = first(await posted(request), "plugin")
    if not plugin:
        return part("options.jinja", task=None, fields=[])
    about = (await site_of(request).commands.run("plugins", "info", plugin, "--json")).json()
    tasks = [item for item in about["gives"] if item["kind"] == "task"]
    if not tasks:
        raise UsageError(f"The plugin {plugin} gives no task. It can be used for its tools, rewards or formats.")
    fields = [
        Field(f"key.task.{item['key']}", item["type"], item["default"], item["doc"]) for item in tasks[0]["options"]
    ]
    return part("options.jinja", task=tasks[0], fields=fields)


async def preview(request: Request) -> Response:
    """The command line and the whole configuration, as ``--dry-run`` gives it, or its error."""
    site, form = site_of(request), await posted(request)
    draft = Draft.of(form, site.catalogue.runs)
    words = draft.command(site.catalogue.runs)
    outcome = await _dry(request, words)
    whole = {} if outcome.problem else dict(flat(yaml.safe_load(outcome.out)))
    values = {f"key.{key}": value_text(value) for key, value in whole.items() if value is not None}
    return part("preview.jinja", command=shlex.join(["rlfactory", *words]), outcome=outcome, values=values)


async def _dry(request: Request, words: Sequence[str]) -> Outcome:
    return await site_of(request).commands.run(*words, "--dry-run")


async def check(request: Request) -> Response:
    """``plugins check`` or ``plugins redteam`` of the task with these options."""
    form = await posted(request)
    plugin, which = first(form, "plugin"), request.path_params["which"]
    if not plugin:
        raise UsageError(
            "Checks are of a plugin's task: choose one above. An agent is tried with `rlfactory agents try`."
        )
    own = [word for word in words_of(form) if word.startswith("task.") and "=" in word]
    outcome = await site_of(request).commands.run("plugins", which, plugin, *own, "--json", seconds=CHECK_S)
    found = outcome.json() if outcome.out.strip() else {}
    return part("checked.jinja", which=which, found=found, outcome=outcome)


async def begin(request: Request) -> Response:
    """Start the run, unless its configuration is refused.

    Raises:
        UsageError: the command's own error.
    """
    site, form = site_of(request), await posted(request)
    draft = Draft.of(form, site.catalogue.runs)
    words = draft.command(site.catalogue.runs)
    if problem := (await _dry(request, words)).problem:
        raise UsageError(problem)
    processes.start(site.catalogue.runs, draft.name, words)
    place = f"/runs/{quote(draft.name)}"
    return PlainTextResponse(place) if request.headers.get("x-part") else RedirectResponse(place, 303)


ROUTES = [
    Route("/new", new_run),
    Route("/new", begin, methods=["POST"]),
    Route("/new/options", options, methods=["POST"]),
    Route("/new/preview", preview, methods=["POST"]),
    Route("/new/checks/{which}", check, methods=["POST"]),
]
