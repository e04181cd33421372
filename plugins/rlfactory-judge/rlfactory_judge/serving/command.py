"""``rlfactory judge serve``: start a judge's server and keep it running."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from rlfactory_core.cache import cache_root
from rlfactory_core.cli.ui.progress import make_progress
from rlfactory_core.errors import BackendError, RunStopped, UsageError
from rlfactory_core.utils.backoff import backoff_s
from rlfactory_judge.serving.endpoint_file import (
    EndpointFile,
    default_endpoints,
    read_endpoints,
    remove_endpoints,
    write_endpoints,
)
from rlfactory_judge.serving.process import ServerProcess
from rlfactory_judge.serving.servers import (
    LOOPBACK,
    Address,
    Device,
    Launch,
    Served,
    choose_backend,
    free_port,
    launch,
    local_model,
)

if TYPE_CHECKING:
    from rlfactory_core.reporting.progress import Progress

_OPTIONS = (
    "Options of the server go after --, such as -- --max-model-len 8192 --gpu-memory-utilization 0.95 where vLLM finds "
    "too little memory."
)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Waiting times in seconds."""

    ready_s: float = 1800.0  # for a server's first answer: large models load for many minutes
    failures: int = 3  # in a row, after which it is given up
    backoff_s: float = 1.0  # before the first restart; doubles with each failure in a row
    backoff_most_s: float = 30.0
    calm_s: float = 120.0  # after this time of operation, earlier failures no longer count
    health_s: float = 1.0  # between health checks
    sick_s: float = 120.0  # an unhealthy server counts as hung after this time, and is restarted


@dataclass(frozen=True, slots=True)
class Server:
    """What is to be kept running."""

    model: str  # the id that requests name
    address: Address
    launch: Launch
    log: Path  # the output of all starts, in an existing folder


@click.command()
@click.option("--model", required=True, metavar="FOLDER|NAME", help="A model's folder, or its name on the Hub.")
@click.option("--replicas", default=1, show_default=True, type=click.IntRange(min=1), help="Copies of the model.")
@click.option("--tp", default=1, show_default=True, type=click.IntRange(min=1), help="GPUs of each copy.")
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
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="0 takes a free one.")
@click.option(
    "--endpoints",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file that tells runs where the server is. Default: judge/endpoints.json in rlfactory's cache.",
)
@click.option("--logs", type=click.Path(file_okay=False, path_type=Path), help="Where the server's output goes.")
@click.option(
    "--ready-s",
    default=1800.0,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    help="How long it may load before it counts as stuck.",
)
@click.argument("rest", nargs=-1, type=click.UNPROCESSED, metavar="[-- SERVER-OPTION...]")
def serve(
    host: str, port: int, endpoints: Path | None, logs: Path | None, ready_s: float, rest: tuple[str, ...], **given: Any
) -> None:
    """Serve a judge's model until Ctrl-C: start its server, and restart it if it ends.

    The server speaks OpenAI's API. When it answers, its address is written to the endpoint file, where a run with the
    reward `judge` finds it; the file is removed at the end. What follows -- goes to the server as it is, such as
    -- --max-model-len 16384 for vLLM.
    """
    served = _served(**given, rest=rest)
    path = endpoints or default_endpoints()
    _check_unused(path)
    address = Address(free_port(host, port), host)
    folder = _log_folder(logs)
    server = Server(served.model_id, address, launch(served, address), folder / "server.log")
    with make_progress(sys.stderr) as progress:
        progress.say(f"{served.model}, served by {served.backend} on {served.device}, logs in {folder}")
        progress.stage("starting", 1, "server")
        was_ready = asyncio.run(_until_stopped(server, Timeouts(ready_s=ready_s), path, progress))
    if not was_ready:
        raise RunStopped("stopped before the server was ready")
    click.echo("stopped", err=True)


async def keep_serving(
    server: Server, ready: Callable[[], None], say: Callable[[str], None], timeouts: Timeouts = Timeouts()
) -> None:
    """Keep a server running until this is cancelled. ``ready`` is called once, when it answers.

    Raises:
        BackendError: it does not get ready at its first start, or has failed too often in a row later.
    """
    url, was_ready, failures = server.address.probe_url, False, 0
    while True:
        began = time.monotonic()
        since: float | None = None
        process = ServerProcess(server.launch, server.log)
        try:
            await process.wait_until_ready(url, server.model, timeouts.ready_s)
            since = time.monotonic()
            say(f"  answers at {server.address.url} after {since - began:.0f} s")
            if not was_ready:
                was_ready = True
                ready()
            error = await process.wait_until_ill(url, timeouts.health_s, timeouts.sick_s)
        except BackendError as failed:
            error = failed
        finally:
            await process.stop()
        if not was_ready:
            raise BackendError(f"{error}\n{_OPTIONS}") from error
        was_calm = since is not None and time.monotonic() - since > timeouts.calm_s
        failures = 1 if was_calm else failures + 1
        if failures >= timeouts.failures:
            raise BackendError(f"The server has failed {failures} times in a row. {error}\n{_OPTIONS}") from error
        delay_s = backoff_s(failures, timeouts.backoff_s, timeouts.backoff_most_s, least=1.0)
        say(f"  {error}\n  Starting it again in {delay_s:g} s.")
        await asyncio.sleep(delay_s)


async def _until_stopped(server: Server, timeouts: Timeouts, path: Path, progress: Progress) -> bool:
    """Run the server until a signal; returns whether it had become ready."""
    is_ready = False

    def ready() -> None:
        nonlocal is_ready
        is_ready = True
        write_endpoints(path, EndpointFile(server.model, (server.address.url,), os.getpid()))
        progress.advance()
        progress.stage("serving")
        progress.say(f"  endpoint file {path} (Ctrl-C stops)")

    work = asyncio.ensure_future(keep_serving(server, ready, progress.say, timeouts))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, work.cancel)
    try:
        await work
    except asyncio.CancelledError:
        progress.say("  stopping the server")
    finally:
        remove_endpoints(path, os.getpid())
    return is_ready


def _served(
    *,
    model: str,
    replicas: int,
    tp: int,
    backend: Literal["auto", "vllm", "transformers"],
    device: str,
    rest: tuple[str, ...],
) -> Served:
    """The settings of the server, if this machine can run it."""
    gpus = 0
    if device != "cpu":
        import torch

        gpus = torch.cuda.device_count()
    where: Device = "cuda" if device == "cuda" or gpus else "cpu"
    served = Served(local_model(model), choose_backend(backend, where), where, replicas, tp, rest)
    is_vllm = served.backend == "vllm"
    for name, value, possible, needed in (
        ("replicas", replicas, is_vllm, "vLLM"),
        ("tp", tp, is_vllm and where == "cuda", "vLLM on GPUs"),
    ):
        if value > 1 and not possible:
            raise UsageError(
                f"--{name} {value} needs {needed}, and this is {served.backend} on {where}. Leave --{name} out."
            )
    if where == "cuda" and replicas * tp > gpus:
        raise UsageError(
            f"--replicas {replicas} with --tp {tp} need {replicas * tp} GPU{'s' * (replicas * tp > 1)}, and {gpus} can "
            "be seen. Give less, name more GPUs in CUDA_VISIBLE_DEVICES, or serve a small model with --device cpu."
        )
    return served


def _check_unused(path: Path) -> None:
    try:
        other = read_endpoints(path)
    except UsageError:
        return  # no file, or a stale one
    if other.pid is not None:
        raise UsageError(
            f"Process {other.pid} on {other.host} already serves {other.model}, as {path} says. End it, or give "
            "another file with --endpoints."
        )


def _log_folder(given: Path | None) -> Path:
    folder = given or cache_root() / "judge" / "logs" / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"The folder {folder} cannot be made ({error.strerror}). Give --logs.") from error
    return folder.resolve()
