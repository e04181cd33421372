"""``rlfactory doctor``: reports what this machine and installation can do, and how to install what is missing."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import asdict
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import click

from rlfactory_core.chat.settings import ChatConfig
from rlfactory_core.cli.options import found_text, needs_local
from rlfactory_core.cli.output import echo, echo_json
from rlfactory_core.errors import ChatFormatError, ModelError, UsageError
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
_LACKS = {
    "system": "system messages; their texts begin the user message that follows",
    "tools": "tools; the first message describes them",
    "results": "tool results; they are sent as the user's turns",
}


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
        checks = _model_checks(model, registry)
    else:
        checks = _checks(registry)
    problems = 0
    if as_json:
        with redirect_stdout(sys.stderr):  # a plugin may print when it is imported
            found = list(checks)
        problems = sum(check.state == "problem" for check in found)
        echo_json({"checks": [asdict(check) for check in found], "problems": problems})
    else:
        for check in checks:
            echo(f"{check.state:<8} {check.what:<{WIDTH}} {check.detail}")
            problems += check.state == "problem"
        echo(found_text(problems))
    ctx.exit(1 if problems else 0)


def _checks(registry: Registry) -> Iterator[Check]:
    supported = sys.version_info >= (3, 11)
    yield Check("ok" if supported else "problem", "Python", f"{platform.python_version()} (3.11 or newer is needed)")
    yield Check("ok", "platform", platform.platform())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    yield Check("ok", "machine", f"{usable_cores()} cores, {memory:.1f} GiB of memory")
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


def _model_checks(model: str, registry: Registry) -> Iterator[Check]:
    """Which chat format a model gets, and whether it is exact on the model's template. No weights are loaded."""
    with needs_local():
        from rlfactory_core.engines.local.memory import model_size
        from rlfactory_core.engines.local.model.loading import load_tokenizer
    try:
        size = model_size(model)
        tokenizer = load_tokenizer(model)
    except ModelError as error:
        yield Check("problem", "model", str(error))
        return
    vocabulary = size.shape.vocabulary
    yield Check("ok", "model", f"{size.parameters:,} parameters, {size.shape.layers} layers, {vocabulary:,} embeddings")
    largest = max(tokenizer.get_vocab().values())
    said = f"{type(tokenizer).__name__}, ids up to {largest:,}; the model has {vocabulary:,}"
    yield Check("ok" if largest < vocabulary else "problem", "tokenizer", said)
    yield from _format_checks(tokenizer, registry)


def _format_checks(tokenizer: Any, registry: Registry) -> Iterator[Check]:
    from rlfactory_core.runner.making import make_chat

    registry.load_all()
    for thinking in (True, False):
        try:
            chat = make_chat(ChatConfig(thinking=thinking), registry)(tokenizer)
        except ChatFormatError as error:
            yield Check("problem", "chat format", str(error))
            return
        if thinking:
            yield Check("ok", "chat format", f"{chat.name}, by the model's chat template")
            abilities = getattr(chat, "abilities", None)  # a format of a plugin need not have a template
            for name, text in _LACKS.items():
                if abilities is not None and not getattr(abilities, name):
                    yield Check("note", "template", f"it does not write {text}")
        setting = f"chat.thinking={str(thinking).lower()}"
        try:
            chat.prove()
        except ChatFormatError as error:
            yield Check("problem", "proof", f"{setting}: {error}")
        else:
            yield Check("ok", "proof", f"{setting}: ids appended turn by turn are those of the rendered conversation")
