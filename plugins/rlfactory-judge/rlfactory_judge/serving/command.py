"""``rlfactory judge serve``: start a judge's server and keep it running."""

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
from rlfactory_judge.serving.servers import (
    LOOPBACK,
    Address,
    Device,
    Served,
    choose_backend,
    free_port,
    launch,
    local_model,
)
from rlfactory_judge.serving.supervisor import Server, Timeouts, keep_serving

if TYPE_CHECKING:
    from typing import Literal

    from rlfactory_core.reporting.progress import Progress

_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@click.command(short_help="Start its server, and keep it running until Ctrl-C.")
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
@click.option(
    "--port",
    default=8000,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="0 takes a free one.",
)
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
def serve(model: str, host: str, port: int, ready_s: float, rest: tuple[str, ...], **options: Any) -> None:
    """Serve a judge's model until Ctrl-C: start its server, and restart it if it ends.

    The server speaks OpenAI's API. When it answers, its address is written to the endpoint file, where a run with the
    reward `judge` finds it; the file is removed at the end. What follows -- goes to the server as it is, such as
    -- --max-model-len 16384 for vLLM.
    """
    served = _served(model, rest, **{name: options[name] for name in ("replicas", "tp", "backend", "device")})
    path = options["endpoints"] or default_endpoints()
    _check_unused(path)
    address = Address(free_port(host, port), host)
    folder = _log_folder(options["logs"])
    server = Server(served.model_id, address, launch(served, address), folder / "server.log")
    with make_progress(sys.stderr) as progress:
        progress.say(f"{served.model}, served by {served.backend} on {served.device}, logs in {folder}")
        progress.stage("starting", 1, "server")
        was_ready = asyncio.run(_until_stopped(server, Timeouts(ready_s=ready_s), path, progress))
    if not was_ready:
        raise RunStopped("stopped before the server was ready")
    click.echo("stopped", err=True)


def _served(
    model: str,
    rest: tuple[str, ...],
    *,
    replicas: int,
    tp: int,
    backend: Literal["auto", "vllm", "transformers"],
    device: str,
) -> Served:
    """The settings of the server, if this machine can run it."""
    gpus = _gpus() if device != "cpu" else 0
    where: Device = "cuda" if device == "cuda" or gpus else "cpu"
    served = Served(local_model(model), choose_backend(backend, where), where, replicas, tp, rest)
    for name, value, possible in (
        ("replicas", replicas, served.backend == "vllm"),
        ("tp", tp, served.backend == "vllm" and where == "cuda"),
    ):
        if value > 1 and not possible:
            needed = "vLLM on GPUs" if name == "tp" else "vLLM"
            raise UsageError(
                f"--{name} {value} needs {needed}, and this is {served.backend} on {where}. Leave --{name} out."
            )
    if where == "cuda" and replicas * tp > gpus:
        raise UsageError(
            f"--replicas {replicas} with --tp {tp} need {replicas * tp} GPU{'s' * (replicas * tp > 1)}, and {gpus} can "
            "be seen. Give less, name more GPUs in CUDA_VISIBLE_DEVICES, or serve a small model with --device cpu."
        )
    return served


def _gpus() -> int:
    """The number of GPUs that the server may use."""
    import torch

    return torch.cuda.device_count()


async def _until_stopped(server: Server, timeouts: Timeouts, path: Path, progress: Progress) -> bool:
    """Run the server until a signal; returns whether it had become ready."""
    is_ready = False

    def ready() -> None:
        nonlocal is_ready
        is_ready = True
        write_endpoints(path, EndpointFile(server.model, (server.address.url,), (os.getpid(),)))
        progress.advance()
        progress.stage("serving")
        progress.say(f"  endpoint file {path} (Ctrl-C stops)")

    work = asyncio.ensure_future(keep_serving(server, ready, progress.say, timeouts))
    loop = asyncio.get_running_loop()
    for number in _ENDS:
        loop.add_signal_handler(number, work.cancel)
    try:
        await work
    except asyncio.CancelledError:
        progress.say("  stopping the server")
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
