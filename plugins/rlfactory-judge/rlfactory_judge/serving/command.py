"""``rlfactory judge serve``: start a judge's server and keep it running."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlfactory_core.cache import cache_root
from rlfactory_core.cli.ui.progress import make_progress
from rlfactory_core.errors import BackendError, RunStopped
from rlfactory_core.utils.backoff import backoff_s
from rlfactory_judge.serving.servers import LOOPBACK, Server, ServerProcess, free_port, server_here

if TYPE_CHECKING:
    from rlfactory_core.reporting.progress import Progress

_FAILURES = 3  # in a row, after which the server is given up
_CALM_S = 120.0  # after this time of operation, earlier failures no longer count
_LONGEST_S = 30.0  # between two starts
_OPTIONS = (
    "Options of the server go after --, such as -- --max-model-len 8192 --gpu-memory-utilization 0.95 where vLLM finds "
    "too little memory."
)


@click.command(context_settings={"show_default": True})
@click.option("--model", required=True, metavar="FOLDER|NAME", help="A model's folder, or its name on the Hub.")
@click.option("--replicas", default=1, type=click.IntRange(min=1), help="Copies of the model.")
@click.option("--tp", default=1, type=click.IntRange(min=1), help="GPUs of each copy.")
@click.option(
    "--backend",
    default="auto",
    type=click.Choice(["auto", "vllm", "transformers"]),
    help="auto: vLLM on GPUs where it is installed, else `transformers serve`, which is for small models.",
)
@click.option(
    "--device",
    default="auto",
    type=click.Choice(["auto", "cuda", "cpu"]),
    help="auto: the GPUs in CUDA_VISIBLE_DEVICES, or the CPU where there are none.",
)
@click.option("--host", default=LOOPBACK, help="0.0.0.0: for other machines too.")
@click.option("--port", default=8000, type=click.IntRange(0, 65535), help="0 takes a free one.")
@click.option(
    "--ready-s",
    default=1800.0,
    type=click.FloatRange(min=0, min_open=True),
    help="How long it may load before it counts as stuck.",
)
@click.argument("rest", nargs=-1, type=click.UNPROCESSED, metavar="[-- SERVER-OPTION...]")
def serve(ready_s: float, **given: Any) -> None:
    """Serve a judge's model until Ctrl-C: start its server, and restart it if it ends.

    The server speaks OpenAI's API. A run on this machine finds it at port 8000; for another port or machine, give the
    run the address that is shown here. What follows -- goes to the server as it is, such as -- --max-model-len 16384.
    """
    server = server_here(**given)
    server = replace(server, port=free_port(server.host, server.port))
    log = cache_root() / "judge" / "logs" / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with make_progress(sys.stderr) as progress:
        progress.say(f"{server.model}, served by {server.backend} on {server.device}, log {log}")
        progress.stage("starting", 1, "server")
        was_ready = asyncio.run(_until_stopped(server, log, ready_s, progress))
    if not was_ready:
        raise RunStopped("stopped before the server was ready")
    click.echo("stopped", err=True)


async def keep_serving(
    server: Server,
    log: Path,
    ready: Callable[[], None],
    say: Callable[[str], None],
    *,
    ready_s: float,
    first_pause_s: float = 1.0,
) -> None:
    """Keep a server running until this is cancelled.

    Args:
        log: the output of all starts, in an existing folder.
        ready: called once, when the server answers.
        ready_s: how long it may take until it answers.
        first_pause_s: before it is started again; doubles with each failure in a row.

    Raises:
        BackendError: it does not get ready at its first start, or has failed too often in a row later.
    """
    was_ready, failures = False, 0
    while True:
        began = time.monotonic()
        process = ServerProcess(server, log)
        try:
            await process.wait_until_ready(ready_s)
            say(f"  answers at {server.url} after {time.monotonic() - began:.0f} s")
            if not was_ready:
                ready()
            was_ready, answered = True, time.monotonic()
            error = await process.wait_until_ended()
            failures = 0 if time.monotonic() - answered > _CALM_S else failures
        except BackendError as failed:
            error = failed
        finally:
            await process.stop()
        failures += 1
        if not was_ready:
            raise BackendError(f"{error}\n{_OPTIONS}") from error
        if failures >= _FAILURES:
            raise BackendError(f"The server has failed {failures} times in a row. {error}\n{_OPTIONS}") from error
        delay_s = backoff_s(failures, first_pause_s, _LONGEST_S, least=1.0)
        say(f"  {error}\n  Starting it again in {delay_s:g} s.")
        await asyncio.sleep(delay_s)


async def _until_stopped(server: Server, log: Path, ready_s: float, progress: Progress) -> bool:
    """Run the server until a signal; returns whether it had become ready."""
    is_ready = False

    def ready() -> None:
        nonlocal is_ready
        is_ready = True
        progress.advance()
        progress.stage("serving")
        progress.say(f"  for runs elsewhere: --judge {server.url} (Ctrl-C stops)")

    work = asyncio.ensure_future(keep_serving(server, log, ready, progress.say, ready_s=ready_s))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, work.cancel)
    try:
        await work
    except asyncio.CancelledError:
        progress.say("  stopping the server")
    return is_ready
