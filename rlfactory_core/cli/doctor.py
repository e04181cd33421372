"""``rlfactory doctor``: what this machine and installation can do, and the command that adds what is missing."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

import click

from rlfactory_core.cli.requirements import requirement_checks
from rlfactory_core.cores import usable_cores
from rlfactory_core.engines.checks import Check, installed
from rlfactory_core.errors import UsageError

if TYPE_CHECKING:
    from rlfactory_core.engines.verl.pins import Device

EXTRAS = {
    "local": "the embedded engine and parquet data (`rlfactory run`, `rlfactory eval`)",
    "lora": "training adapters instead of all weights (train.lora)",
    "loggers": "TensorBoard, Weights & Biases and trackio beside metrics.jsonl",
    "mcp": "MCP servers as tools (`rlfactory run --mcp FILE`)",
    "qwen-agent": "Qwen-Agent's tools in a task",
    "verl": "the verl engine on GPUs; `rlfactory doctor --engine verl` says more, also for a CPU",
}

WIDTH = 12  # of the names in the report; those of an engine are longer
ENGINE_WIDTH = 13


@click.command()
@click.option("--engine", type=click.Choice(["verl"]), help="Check what this engine needs, and nothing else.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), help="Default: cuda on a GPU machine, else cpu.")
@click.option("--install", is_flag=True, help="First install, with pip, what the engine lacks; asks nothing.")
@click.pass_context
def doctor(ctx: click.Context, engine: str | None, device: Device | None, install: bool) -> None:
    """Say what this machine and installation can do; exit with 1 where something is wrong."""
    if engine:
        problems = _report(_of_verl(device, install), ENGINE_WIDTH)
    elif device or install:
        raise UsageError("--device and --install belong to an engine: rlfactory doctor --engine verl …")
    else:
        problems = _report(_checks(), WIDTH)
    click.echo(f"{problems} problem{'' if problems == 1 else 's'} found." if problems else "No problems found.")
    ctx.exit(1 if problems else 0)


def _report(checks: Iterable[Check], width: int) -> int:
    problems = 0
    for check in checks:
        click.echo(f"{check.state:<8} {check.what:<{width}} {check.detail}")
        problems += check.state == "problem"
    return problems


def _of_verl(device: Device | None, install: bool) -> Iterator[Check]:
    from rlfactory_core.engines.verl.doctor import checks
    from rlfactory_core.engines.verl.install import install_for
    from rlfactory_core.engines.verl.machine import has_gpu

    device = device or ("cuda" if has_gpu() else "cpu")
    if install:
        install_for(device, click.echo)
    return checks(device)


def _checks() -> Iterator[Check]:
    yield from _machine()
    yield from _requirements()
    yield _device()
    yield _code_guards()
    yield _plugins()


def _machine() -> Iterator[Check]:
    supported = sys.version_info >= (3, 10)
    yield Check("ok" if supported else "problem", "Python", f"{platform.python_version()} (3.10 or newer is needed)")
    yield Check("ok", "platform", platform.platform())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    yield Check("ok", "machine", f"{usable_cores()} cores, {memory:.1f} GiB of memory")


def _requirements() -> Iterator[Check]:
    """The distribution's own requirements: those of the base must be met, those of an extra all or none."""
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


def _code_guards() -> Check:
    """Of the code interpreter, by a process that puts them all up."""
    from rlfactory_core.tools.interpreter.tool import GUARDS
    from rlfactory_core.tools.interpreter.warden import unguarded

    missing = unguarded()
    guarded = ", ".join(guard for guard in GUARDS if guard not in missing) or "nothing"
    lacking = "".join(f"; not {guard} ({reason})" for guard, reason in sorted(missing.items()))
    return Check("note" if missing else "ok", "interpreter", f"the model's code is guarded: {guarded}{lacking}")


def _plugins() -> Check:
    from rlfactory_core.plugins.registry import Registry

    registry = Registry()
    working = len(registry.load_all()) - 1  # without the built-ins
    wrong = [item.entry.qualified for item in registry.broken]
    wrong += ["names that several plugins give"] if registry.conflicts() else []
    if wrong:
        return Check("problem", "plugins", f"{', '.join(wrong)}: see `rlfactory plugins doctor`")
    if not working:
        return Check("note", "plugins", "none; a task comes as a plugin, for example: pip install rlfactory-search")
    return Check("ok", "plugins", f"{working} installed; `rlfactory plugins list` names them")
