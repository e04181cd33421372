"""``rlfactory doctor``: reports what this machine and installation can do, and how to install what is missing."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout
from dataclasses import asdict
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

import click

from rlfactory_core.cli.doctor_model import model_checks
from rlfactory_core.cli.options import found_text
from rlfactory_core.cli.output import echo, echo_json
from rlfactory_core.errors import UsageError
from rlfactory_core.plugins.diagnostics import Check, DoctorRequest, installed, requirement_checks
from rlfactory_core.utils.cpu import usable_cores

if TYPE_CHECKING:
    from rlfactory_core.plugins.registry import Registry

EXTRAS = {
    "local": "the embedded engine and parquet data (`rlfactory run`, `rlfactory eval`)",
    "lora": "training adapters instead of all weights (train.lora)",
    "loggers": "TensorBoard, Weights & Biases and trackio beside metrics.jsonl",
    "mcp": "MCP servers as tools (`rlfactory run --mcp FILE`)",
    "qwen-agent": "Qwen-Agent's tools in a task",
}

WIDTH = 13  # of the names in the report


@click.command()
@click.option("--engine", metavar="NAME", help="Check what this engine needs, and nothing else.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), help="Default: cuda on a GPU machine, else cpu.")
@click.option("--model", metavar="PATH", help="Check which chat format this model gets, and that it is exact.")
@click.option("--install", is_flag=True, help="First install, with pip, what the engine lacks; asks nothing.")
@click.option("--json", "as_json", is_flag=True, help="As a JSON object.")
@click.pass_context
def doctor(
    ctx: click.Context, engine: str | None, device: str | None, model: str | None, install: bool, as_json: bool
) -> None:
    """Say what this machine and installation can do; exit with 1 where something is wrong."""
    from rlfactory_core.plugins.registry import Registry

    registry = Registry()
    if engine and model:
        raise UsageError("--engine and --model are two checks. Give one of them.")
    if engine:
        request = DoctorRequest(device, install, partial(echo, err=as_json))
        checks = registry.find(engine, "diagnostic").make(request)
    elif device or install:
        raise UsageError("--device and --install belong to an engine: rlfactory doctor --engine NAME …")
    elif model:
        checks = model_checks(model, registry)
    else:
        checks = _checks(registry)
    problems = _report_json(checks) if as_json else _report(checks)
    ctx.exit(1 if problems else 0)


def _report(checks: Iterable[Check]) -> int:
    problems = 0
    for check in checks:
        echo(f"{check.state:<8} {check.what:<{WIDTH}} {check.detail}")
        problems += check.state == "problem"
    echo(found_text(problems))
    return problems


def _report_json(checks: Iterable[Check]) -> int:
    with redirect_stdout(sys.stderr):  # a plugin may print when it is imported
        found = list(checks)
    problems = sum(check.state == "problem" for check in found)
    echo_json({"checks": [asdict(check) for check in found], "problems": problems})
    return problems


def _checks(registry: Registry) -> Iterator[Check]:
    yield from _machine()
    yield from _requirements()
    yield _device()
    plugins = registry.load_all()
    given = [item for plugin in plugins for item in plugin.registrations]
    engines = {item.name for item in given if item.kind == "engine"}
    for item in given:
        if item.kind == "diagnostic" and item.name in engines:
            yield Check("note", item.name, f"an engine; `rlfactory doctor --engine {item.name}` says what it needs")
        elif item.kind == "diagnostic":
            yield from item.make(DoctorRequest(device=None, install=False, say=echo))
    yield _plugins(registry, len(plugins) - 1)  # without the built-ins


def _machine() -> Iterator[Check]:
    supported = sys.version_info >= (3, 11)
    yield Check("ok" if supported else "problem", "Python", f"{platform.python_version()} (3.11 or newer is needed)")
    yield Check("ok", "platform", platform.platform())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    yield Check("ok", "machine", f"{usable_cores()} cores, {memory:.1f} GiB of memory")


def _requirements() -> Iterator[Check]:
    try:
        yield Check("ok", "core", f"rlfactory-core {version('rlfactory-core')}")
    except PackageNotFoundError:
        yield Check("note", "core", "runs from its source tree, not installed: what it requires is not known")
        return
    yield from requirement_checks("rlfactory-core", EXTRAS)


def _device() -> Check:
    try:
        import torch
    except ImportError as error:
        if installed("torch") is None:
            return Check("note", "device", "unknown without torch")
        return Check("problem", "device", f"torch is installed but cannot be imported: {error}")
    if not torch.cuda.is_available():
        return Check("ok", "device", f"cpu, {torch.get_num_threads()} threads; no CUDA device")
    gpu = torch.cuda.get_device_properties(0)
    memory = f"{gpu.total_memory / 2**30:.0f} GiB"
    return Check("ok", "device", f"cuda, {torch.cuda.device_count()} of {gpu.name} with {memory} each")


def _plugins(registry: Registry, working: int) -> Check:
    wrong = [item.entry.qualified for item in registry.broken]
    wrong += ["names that several plugins give"] if registry.conflicts() else []
    if wrong:
        return Check("problem", "plugins", f"{', '.join(wrong)}: see `rlfactory plugins doctor`")
    if not working:
        return Check("note", "plugins", "none; a task comes as a plugin, for example: pip install rlfactory-search")
    return Check("ok", "plugins", f"{working} installed; `rlfactory plugins list` names them")
