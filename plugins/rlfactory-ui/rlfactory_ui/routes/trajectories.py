"""Trajectories: those of a step or evaluation, one alone, and a group's attempts side by side."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rlfactory_core.algo import group_advantages
from rlfactory_core.errors import ConfigError, UsageError
from rlfactory_core.reporting import RunFolder, StoredTrajectory, read_image, success_metric
from rlfactory_ui import trajectory_files
from rlfactory_ui.pages import kept_images, page, part, site_of
from rlfactory_ui.tokens import TokenTexts, advantage_colour
from rlfactory_ui.trajectory_files import Filter, Line

_LISTED = 500  # trajectories on one page
_BESIDE = 16  # attempts side by side


async def listed(request: Request) -> Response:
    folder = site_of(request).catalogue.folder(request.path_params["name"])
    names = trajectory_files.files(folder)
    name = request.query_params.get("file") or next(iter([n for n in names if n.startswith("step-")][-1:] or names), "")
    wanted = Filter(**{key: request.query_params.get(key, "") for key in Filter.__dataclass_fields__})
    every = trajectory_files.lines(folder, name) if name else ()
    metric = success_metric(folder.read_summary())
    found = trajectory_files.matching(folder, name, wanted, metric) if name else []
    choices = {
        "slice": sorted({line.slice for line in every if line.slice}),
        "stop": sorted({line.stop for line in every}),
        "fault": sorted({fault for line in every for fault in line.faults}),
        "tool": sorted({tool for line in every for tool in line.tools}),
    }
    return page(
        request,
        "trajectories.jinja",
        run=folder.name,
        files=names if len(names) <= _LISTED else sorted({*names[:: len(names) // _LISTED + 1], name}, key=names.index),
        file=name,
        wanted=wanted,
        choices=choices,
        total=len(every),
        found=len(found),
        lines=found[:_LISTED],
        succeeded=trajectory_files.succeeded(every, metric),
    )


async def one(request: Request) -> Response:
    """A trajectory, as messages or as tokens, and its way to the others."""
    folder = site_of(request).catalogue.folder(request.path_params["name"])
    file, number = request.path_params["file"], request.path_params["number"]
    line, stored = trajectory_files.trajectory(folder, file, number)
    lines = trajectory_files.lines(folder, file)
    group = [each for each in lines if each.sample == line.sample]
    advantage = _advantages(site_of(request).run(folder.name).config, file, group).get(line.number)
    return page(
        request,
        "trajectory.jinja",
        run=folder.name,
        file=file,
        line=line,
        stored=stored,
        images=kept_images(folder),
        count=len(lines),
        group=group,
        advantage=advantage,
        colour=advantage_colour(advantage or 0.0),
        turns=TokenTexts.of(folder).turns(stored),
        elsewhere=_elsewhere(folder, line.sample, file),
    )


async def plugin_sections(request: Request) -> Response:
    """What the plugins of the run have to show of a trajectory, as of a run."""
    site, parameters = site_of(request), request.path_params
    folder = site.catalogue.folder(parameters["name"])
    which = f"{parameters['file']}/{parameters['number']}"
    found = (await site.commands.run("report", str(folder.path), "--trajectory", which)).json()
    return part("plugin_sections.jinja", sections=found)


async def attempts(request: Request) -> Response:
    """The attempts at one sample side by side, with the turn from which each differs from the first."""
    folder = site_of(request).catalogue.folder(request.path_params["name"])
    file, sample = request.path_params["file"], request.query_params.get("sample", "")
    group = [line for line in trajectory_files.lines(folder, file) if line.sample == sample]
    if not group:
        raise UsageError(f"No attempt at the sample '{sample}' in {file}.")
    advantages = _advantages(site_of(request).run(folder.name).config, file, group)
    shown = [trajectory_files.trajectory(folder, file, line.number) for line in group[:_BESIDE]]
    first = shown[0][1]
    items = [(line, stored, advantages.get(line.number), _equal_turns(first, stored)) for line, stored in shown]
    return page(
        request,
        "attempts.jinja",
        run=folder.name,
        file=file,
        sample=sample,
        items=items,
        images=kept_images(folder),
        count=len(group),
    )


def _equal_turns(one: StoredTrajectory, other: StoredTrajectory) -> int:
    """The number of turns from the first on in which the model said the same."""
    pairs = zip(one.trajectory.turns, other.trajectory.turns, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0].message == pair[1].message, pairs))


def _advantages(config: object, file: str, group: Sequence[Line]) -> dict[int, float]:
    """By number; empty for evaluations, and for estimators that need more than the rewards."""
    train = config.get("train") if isinstance(config, dict) else None
    live = [line for line in group if not line.masked]
    if len(live) < 2 or not file.startswith("step-"):
        return {}
    try:
        found = group_advantages((train or {}).get("advantage", "grpo"), [line.reward for line in live])
    except ConfigError:
        return {}
    return dict(zip((line.number for line in live), found, strict=True))


def _elsewhere(folder: RunFolder, sample: str, here: str) -> list[tuple[str, int]]:
    """The same sample in the evaluations before and after training: file and number."""
    found = []
    for file in ("eval-before", "eval-after"):
        if file != here and Path(folder.trajectories / f"{file}.jsonl").is_file():
            numbers = [line.number for line in trajectory_files.lines(folder, file) if line.sample == sample]
            found += [(file, number) for number in numbers[:1]]
    return found


async def image(request: Request) -> Response:
    """An image of the run, as the browser shows it alone: as PNG, and nothing in it is run."""
    folder = site_of(request).catalogue.folder(request.path_params["name"])
    return Response(read_image(folder, request.path_params["digest"]), media_type="image/png")


ROUTES = [
    Route("/runs/{name}/images/{digest}.png", image),
    Route("/runs/{name}/trajectories", listed),
    Route("/runs/{name}/trajectories/{file}/attempts", attempts),
    Route("/runs/{name}/trajectories/{file}/{number:int}", one),
    Route("/runs/{name}/trajectories/{file}/{number:int}/plugins", plugin_sections),
]
