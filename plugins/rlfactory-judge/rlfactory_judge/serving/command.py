"""``rlfactory judge serve``: start a judge's servers and keep them running."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlfactory_core.cache import cache_root
from rlfactory_core.cli.ui.progress import make_progress
from rlfactory_core.errors import RunStopped, UsageError
from rlfactory_judge.serving.endpoint_file import (
    EndpointFile,
    default_endpoints,
    read_endpoints,
    remove_endpoints,
    write_endpoints,
)
from rlfactory_judge.serving.machine import check_free, free_ports, visible_gpus
from rlfactory_judge.serving.servers import (
    LOOPBACK,
    Device,
    Replica,
    Served,
    choose_backend,
    launch,
    local_model,
    split_gpus,
)
from rlfactory_judge.serving.supervisor import ServerGroup, Supervisor, Timeouts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal

    from rlfactory_core.reporting.progress import Progress

_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@click.command(short_help="Start its servers, and keep them running until Ctrl-C.")
@click.option("--model", required=True, metavar="FOLDER|NAME", help="A model's folder, or its name on the Hub.")
@click.option("--replicas", default=1, show_default=True, type=click.IntRange(min=1), help="Servers of the same model.")
@click.option("--tp", default=1, show_default=True, type=click.IntRange(min=1), help="GPUs that each server spans.")
@click.option(
    "--backend",
    default="auto",
    show_default=True,
    type=click.Choice(["auto", "vllm", "transformers"]),
    help="auto: vLLM where it is installed, else `transformers serve`, which is for small models.",
)
@click.option(
    "--device",
    default="auto",
    show_default=True,
    type=click.Choice(["auto", "cuda", "cpu"]),
    help="auto: the GPUs in CUDA_VISIBLE_DEVICES, or the CPU where there are none.",
)
@click.option("--host", default=LOOPBACK, show_default=True, help="0.0.0.0: for other machines too.")
@click.option(
    "--port",
    default=8000,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Of the first server; the others' follow it. 0 takes free ones.",
)
@click.option(
    "--endpoints",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file that tells runs where the servers are. Default: judge/endpoints.json in rlfactory's cache.",
)
@click.option("--logs", type=click.Path(file_okay=False, path_type=Path), help="Where the servers' output goes.")
@click.option(
    "--ready-s",
    default=1800.0,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    help="How long a server may load before it counts as stuck.",
)
@click.argument("rest", nargs=-1, type=click.UNPROCESSED, metavar="[-- SERVER-OPTION...]")
def serve(model: str, replicas: int, tp: int, host: str, port: int, rest: tuple[str, ...], **options: Any) -> None:
    """Serve a judge's model until Ctrl-C: start its servers, and restart those that end.

    The servers speak OpenAI's API. When all of them answer, their addresses are written to the endpoint file, where a
    run with the reward `judge` finds them; it is removed at the end. What follows -- goes to each server as it is, such
    as -- --max-model-len 16384 for vLLM.
    """
    served, gpus = _what(model, tp, rest, options["backend"], options["device"])
    split = split_gpus(gpus, replicas, tp) if served.device == "cuda" else ((),) * replicas
    path = options["endpoints"] or default_endpoints()
    _check_unused(path)
    ports = tuple(range(port, port + replicas)) if port else free_ports(host, replicas)
    check_free(host, ports)
    folder = _log_folder(options["logs"])
    with make_progress(sys.stderr) as progress:
        members = [Replica(number, host, own) for number, own in zip(ports, split, strict=True)]
        group = ServerGroup(served.model_id, members, lambda replica: launch(served, replica), movable=port == 0)
        timeouts = Timeouts(ready_s=options["ready_s"])
        supervisor = Supervisor(group, logs=folder, progress=progress, timeouts=timeouts)
        progress.say(f"{served.model}, served by {served.backend} on {served.device}, logs in {folder}")
        progress.stage("starting", replicas, "server")
        was_ready = asyncio.run(_until_stopped(supervisor, served.model_id, path, progress))
    if not was_ready:
        raise RunStopped("stopped before the servers were ready")
    click.echo("stopped", err=True)


def _what(
    model: str, tp: int, rest: tuple[str, ...], backend: Literal["auto", "vllm", "transformers"], device: str
) -> tuple[Served, Sequence[str]]:
    """The common settings of the servers, and the GPUs for them."""
    gpus = visible_gpus() if device != "cpu" else ()
    where: Device = "cuda" if device == "cuda" or gpus else "cpu"
    served = Served(local_model(model), choose_backend(backend, where), where, tp, rest)
    if tp > 1 and (served.backend != "vllm" or where == "cpu"):
        raise UsageError(f"--tp {tp} needs vLLM on GPUs, and this is {served.backend} on {where}. Leave --tp out.")
    return served, gpus


async def _until_stopped(supervisor: Supervisor, model: str, path: Path, progress: Progress) -> bool:
    """Run the servers until a signal; returns whether they had become ready."""
    is_ready = False

    def ready() -> None:
        nonlocal is_ready
        is_ready = True
        write_endpoints(path, EndpointFile(model, supervisor.urls, (os.getpid(),)))
        progress.stage("serving")
        progress.say(f"  endpoint file {path} (Ctrl-C stops)")

    work = asyncio.ensure_future(supervisor.run(ready))
    loop = asyncio.get_running_loop()
    for number in _ENDS:
        loop.add_signal_handler(number, work.cancel)
    try:
        await work
    except asyncio.CancelledError:
        progress.say("  stopping the servers")
    finally:
        remove_endpoints(path, os.getpid())
    return is_ready


def _check_unused(path: Path) -> None:
    try:
        other = read_endpoints(path)
    except UsageError:
        return  # no file, or a stale one
    if other.pids:
        raise UsageError(
            f"Process {other.pids[0]} on {other.host} already serves {other.model}, as {path} says. End it, or give "
            "another file with --endpoints."
        )


def _log_folder(given: Path | None) -> Path:
    folder = given or cache_root() / "judge" / "logs" / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"The folder {folder} cannot be made ({error.strerror}). Give --logs.") from error
    return folder.resolve()
