"""``rlfactory doctor``: what this machine and installation can do, and the command that adds what is missing."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from typing import TYPE_CHECKING, Literal

import click

if TYPE_CHECKING:
    from packaging.requirements import Requirement

EXTRAS = {
    "local": "the embedded engine and parquet data (`rlfactory run`, `rlfactory eval`)",
    "lora": "training adapters instead of all weights (train.lora)",
    "loggers": "TensorBoard, Weights & Biases and trackio beside metrics.jsonl",
    "mcp": "plugins that use MCP servers as tools",
    "qwen-agent": "plugins that use Qwen-Agent's tools",
    "verl": "plugins that train with verl",
}

State = Literal["ok", "note", "missing", "problem"]


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report; only a ``problem`` makes the exit code 1."""

    state: State
    what: str
    detail: str


@click.command()
@click.pass_context
def doctor(ctx: click.Context) -> None:
    """Say what this machine and installation can do; exit with 1 where something is wrong."""
    problems = 0
    for check in _checks():
        click.echo(f"{check.state:<8} {check.what:<12} {check.detail}")
        problems += check.state == "problem"
    click.echo(f"{problems} problem{'' if problems == 1 else 's'} found." if problems else "No problems found.")
    ctx.exit(1 if problems else 0)


def _checks() -> Iterator[Check]:
    yield from _machine()
    yield from _requirements()
    yield _device()
    yield _plugins()


def _machine() -> Iterator[Check]:
    supported = sys.version_info >= (3, 10)
    yield Check("ok" if supported else "problem", "Python", f"{platform.python_version()} (3.10 or newer is needed)")
    yield Check("ok", "platform", platform.platform())
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    yield Check("ok", "machine", f"{cores} cores, {memory:.1f} GiB of memory")


def _requirements() -> Iterator[Check]:
    """The distribution's own requirements: those of the base must be met, those of an extra all or none."""
    from packaging.requirements import Requirement

    try:
        lines = requires("rlfactory-core") or []
        yield Check("ok", "core", f"rlfactory-core {version('rlfactory-core')}")
    except PackageNotFoundError:
        yield Check("note", "core", "runs from its source tree, not installed: what it requires is not known")
        return
    requirements = [Requirement(line) for line in lines]
    base = [item for item in requirements if item.marker is None or item.marker.evaluate({"extra": ""})]
    yield _group("base", base, "everything", "rlfactory-core")
    for extra, purpose in EXTRAS.items():
        markers = [(item, item.marker) for item in requirements if item not in base]
        own = [item for item, marker in markers if marker and marker.evaluate({"extra": extra})]
        yield _group(extra, own, purpose, f"rlfactory-core[{extra}]")


def _group(name: str, requirements: list[Requirement], purpose: str, pip_name: str) -> Check:
    found = {item.name: _installed(item.name) for item in requirements}
    wrong = [f"{i.name} {found[i.name]} (not {i.specifier})" for i in requirements if not _fits(i, found[i.name])]
    absent = [item for item, installed in found.items() if installed is None]
    remedy = f"pip install '{pip_name}'"
    if wrong or (absent and name == "base"):
        return Check("problem", name, f"{', '.join(wrong + absent)}: {remedy}")
    if absent:
        return Check("missing", name, f"{', '.join(absent)}; for {purpose}: {remedy}")
    return Check("ok", name, ", ".join(f"{item} {installed}" for item, installed in found.items()))


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _fits(requirement: Requirement, installed: str | None) -> bool:
    return installed is None or requirement.specifier.contains(installed, prereleases=True)


def _device() -> Check:
    try:
        import torch
    except ImportError as error:
        if _installed("torch") is None:
            return Check("note", "device", "unknown without torch")
        return Check("problem", "device", f"torch is installed but cannot be imported: {error}")
    if not torch.cuda.is_available():
        return Check("ok", "device", f"cpu, {torch.get_num_threads()} threads; no CUDA device")
    gpu = torch.cuda.get_device_properties(0)
    memory = f"{gpu.total_memory / 2**30:.0f} GiB"
    return Check("ok", "device", f"cuda, {torch.cuda.device_count()} of {gpu.name} with {memory} each")


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
