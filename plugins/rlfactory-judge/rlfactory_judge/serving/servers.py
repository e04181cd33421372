"""The server of a model, vLLM or, for small models, ``transformers serve``: a process that ends with its children."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import click
import httpx

from rlfactory_core.clients import bounded_request
from rlfactory_core.errors import BackendError, MissingExtraError, UsageError
from rlfactory_core.utils.display import printable

Backend = Literal["vllm", "transformers"]
Wanted = Literal["auto", Backend]
Device = Literal["cuda", "cpu"]

LOOPBACK = "127.0.0.1"
_ANYWHERE = ("0.0.0.0", "::", "")  # noqa: S104 - recognised, not chosen
# vLLM's reasoning parsers by the model's name; the first match counts.
_REASONING = (
    (r"qwq|deepseek-?r1|r1-distill", "deepseek_r1"),
    (r"qwen-?3(?!.*(instruct|coder))", "qwen3"),
    (r"gpt-?oss", "openai_gptoss"),
    (r"magistral", "mistral"),
    (r"glm-?4\.[56]", "glm45"),
)
# `transformers serve` alone: its own command imports the other subcommands too.
_TRANSFORMERS = """
import typer
from transformers.cli.serve import Serve
app = typer.Typer()
app.command()(Serve)
app()
"""
_ENVIRONMENT = {
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_DISABLE_UPDATE_CHECK": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_DO_NOT_TRACK": "1",
}
_TAIL_BYTES = 1 << 16
# Variables from launchers such as torchrun, which a server must not inherit.
_LAUNCHERS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")
_POLL_S = 0.1
_FIRST_S = 600.0  # for the model's first answer, before which it may compile or warm up
# Of a local server, beside training on a CPU: one thread, and nothing from the network.
_LOCAL = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


@dataclass(frozen=True, slots=True)
class Server:
    """What is served, on what, and where it listens."""

    model: str  # a folder's absolute path, or a name on the Hub
    backend: Backend
    device: Device
    port: int
    host: str = LOOPBACK
    replicas: int = 1  # copies of the model in one server, which balances their load; only vLLM has several
    tensor_parallel: int = 1  # GPUs of each copy
    extra: tuple[str, ...] = ()  # the server's own options, after ours, so that they override them
    environment: Mapping[str, str] = field(default_factory=dict)  # more variables of its process

    @property
    def model_id(self) -> str:
        """The model's id in requests."""
        for position, word in enumerate(self.extra):
            name, _, value = word.partition("=")
            if self.backend == "vllm" and name == "--served-model-name":
                return value or (*self.extra, "", "")[position + 1] or self.model
        return self.model

    @property
    def probe_url(self) -> str:
        """Its address on this machine."""
        return self._url(LOOPBACK)

    @property
    def url(self) -> str:
        """Its address for other machines."""
        return self._url(socket.gethostname())

    def _url(self, anywhere: str) -> str:
        host = anywhere if self.host in _ANYWHERE else self.host
        return f"http://[{host}]:{self.port}/v1" if ":" in host else f"http://{host}:{self.port}/v1"

    def command(self) -> list[str]:
        """The command of its process."""
        words = [sys.executable, *(_vllm(self) if self.backend == "vllm" else ("-c", _TRANSFORMERS, self.model))]
        words += ["--host", self.host, "--port", str(self.port)]
        return [*words, *(("--device", self.device) if self.backend == "transformers" else ()), *self.extra]

    def variables(self) -> dict[str, str]:
        """The environment variables of its process, besides those of this one."""
        on_cpu = {"CUDA_VISIBLE_DEVICES": ""} if self.device == "cpu" else {}
        # The list of models of `transformers serve` comes from the cache, and fails without one; clients use this list
        # as a health check. Its working directory serves as an empty cache.
        is_folder = self.backend == "transformers" and Path(self.model).is_absolute()
        return {**_ENVIRONMENT, **on_cpu, **({"HF_HUB_CACHE": "."} if is_folder else {}), **self.environment}


def _vllm(server: Server) -> list[str]:
    # `vllm serve` has an API server for each replica, but asks for the distribution "vllm": the build for CPUs has
    # another name.
    if server.device == "cuda":
        words = ["-m", "vllm.entrypoints.cli.main", "serve", server.model]
    else:
        words = ["-m", "vllm.entrypoints.openai.api_server", "--model", server.model]
    words.append("--enable-prefix-caching")
    if server.replicas > 1:
        words += ["--data-parallel-size", str(server.replicas)]
    if server.tensor_parallel > 1:
        words += ["--tensor-parallel-size", str(server.tensor_parallel)]
    if parser := reasoning_parser(server.model):
        words += ["--reasoning-parser", parser]
    return words


def reasoning_parser(model: str) -> str | None:
    """The name of vLLM's reasoning parser for a model; None if unknown."""
    name = Path(model).name.lower()
    return next((parser for pattern, parser in _REASONING if re.search(pattern, name)), None)


def server_here(
    *, model: str, replicas: int, tp: int, backend: Wanted, device: str, host: str, port: int, rest: tuple[str, ...]
) -> Server:
    """The server, if this machine can run it; raises `UsageError` or `MissingExtraError`. The port is not tried."""
    gpus = 0
    if device != "cpu":
        import torch

        gpus = torch.cuda.device_count()
    where: Device = "cuda" if device == "cuda" or gpus else "cpu"
    server = Server(local_model(model), choose_backend(backend, where), where, port, host, replicas, tp, rest)
    is_vllm = server.backend == "vllm"
    for name, value, possible, needed in (
        ("replicas", replicas, is_vllm, "vLLM"),
        ("tp", tp, is_vllm and where == "cuda", "vLLM on GPUs"),
    ):
        if value > 1 and not possible:
            raise UsageError(
                f"--{name} {value} needs {needed}, and this is {server.backend} on {where}. Leave --{name} out."
            )
    if where == "cuda" and replicas * tp > gpus:
        raise UsageError(
            f"--replicas {replicas} with --tp {tp} need {replicas * tp} GPU{'s' * (replicas * tp > 1)}, and {gpus} can "
            "be seen. Give less, name more GPUs in CUDA_VISIBLE_DEVICES, or serve a small model with --device cpu."
        )
    return server


def choose_backend(wanted: Wanted, device: Device) -> Backend:
    """The wanted backend; auto is vLLM on GPUs if it is installed. Raises `MissingExtraError` if vLLM is missing."""
    has_vllm = find_spec("vllm") is not None
    if wanted == "auto":
        return "vllm" if has_vllm and device == "cuda" else "transformers"
    if wanted == "vllm" and not has_vllm:
        raise MissingExtraError(f"The backend vllm is not installed for {sys.executable}: pip install vllm")
    return wanted


def local_model(model: str) -> str:
    """A folder's absolute path, or a name on the Hub as it is; raises `UsageError` for a folder without a model."""
    path = Path(model).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise UsageError(f"The folder {path} holds no model: config.json is missing.")
        return str(path.resolve())
    if path.is_absolute() or model.startswith((".", "~")) or model.count("/") > 1:
        raise UsageError(f"There is no folder {path}. Expected a model's folder, or a name on the Hugging Face Hub.")
    return model


def free_port(host: str, port: int = 0) -> int:
    """The port, or with 0 a free one, which another program may still take. Raises `UsageError` if it cannot be had."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.create_server((host, port), family=family) as probe:
            return int(probe.getsockname()[1])
    except (OSError, OverflowError) as error:
        what = f"Port {port} on {host or 'this machine'} cannot be used" if port else f"Nobody can listen on {host}"
        raise UsageError(
            f"{what} ({getattr(error, 'strerror', None) or error}). Choose another --port (0 for a free one) or --host."
        ) from error


class ServerProcess:
    """The process of a server, with a process group of its own. The output is appended to ``log``.

    On Linux the server gets SIGTERM when the thread that started it ends, also if this process is killed. Servers then
    end their own children.

    Args:
        grace_s: seconds between SIGTERM and SIGKILL.

    Raises:
        BackendError: no process can be started.
    """

    def __init__(self, server: Server, log: Path, *, grace_s: float = 10.0) -> None:
        self.url, self.model = server.probe_url, server.model_id
        self.log = log
        self._grace_s = grace_s
        inherited = {name: value for name, value in os.environ.items() if name not in _LAUNCHERS}
        with_us = ("setpriv", "--pdeathsig", "TERM", "--") if shutil.which("setpriv") else ()
        try:
            with log.open("ab") as output:
                self._from = output.tell()
                self._process = subprocess.Popen(  # noqa: S603
                    [*with_us, *server.command()],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd=log.parent,  # our own folder: `python -m` imports from the working directory
                    env={**inherited, **server.variables()},
                    start_new_session=True,  # only we get a terminal's Ctrl-C, and then stop the server
                )
        except OSError as error:
            raise BackendError(f"The server cannot be started: {error}.") from error

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; minus the signal's number if a signal ended it."""
        return self._process.poll()

    def last_lines(self, count: int = 30) -> str:
        """The end of its output."""
        with self.log.open("rb") as file:
            file.seek(max(self._from, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            lines = click.unstyle(file.read().decode("utf-8", "replace")).splitlines()
        return "\n".join(map(printable, lines[-count:]))

    async def wait_until_ready(self, seconds: float) -> None:
        """Wait at most ``seconds`` until the server answers questions.

        Raises:
            BackendError: it ends, the time is over, or the server at that address does not have the model.
        """
        ends, url = time.monotonic() + seconds, self.url
        async with httpx.AsyncClient(trust_env=False) as client:
            while not await is_healthy(client, url, 1.0):  # it may have ended, and another program use its port
                if self.exit_code is not None:
                    raise self._ended()
                if time.monotonic() >= ends:
                    raise self._failed(f"The server does not answer at {url} after {seconds:g} s.")
                await asyncio.sleep(_POLL_S)
            # Another program on the port would refuse to sample a token of our model.
            body = {"model": self.model, "messages": [{"role": "user", "content": "Ready?"}], "max_tokens": 1}
            try:
                response = await bounded_request(client, "POST", f"{url}/chat/completions", json=body, timeout=_FIRST_S)
            except httpx.HTTPError as error:
                raise self._failed(f"The server at {url} does not answer questions: {error!r}.") from error
        if self.exit_code is not None:
            raise self._ended()
        # A key that the user's own options require is no objection. A server that fails on this one text (transformers
        # does for invalid tool calls) still counts as ready.
        if response.is_client_error and response.status_code not in (401, 403):
            raise self._failed(f"The server at {url} does not answer questions to {self.model}: {response.text[:500]}")

    async def wait_until_ended(self) -> BackendError:
        """Wait until the server has ended; returns what to tell the user."""
        while self.exit_code is None:  # noqa: ASYNC110 - a process tells nobody
            await asyncio.sleep(_POLL_S)
        return self._ended()

    async def stop(self) -> None:
        """End the server and its children; returns when they have ended. May be called again."""
        self._signal(signal.SIGTERM)  # before any waiting, which may be cancelled
        await asyncio.to_thread(self._wait)

    def _wait(self) -> None:
        """The children get the time too: Python's resource tracker removes shared memory after the server has ended."""
        ends = time.monotonic() + self._grace_s
        while (self.exit_code is None or self._signal(0)) and time.monotonic() < ends:
            time.sleep(_POLL_S)
        self._signal(signal.SIGKILL)
        self._process.wait()

    def _signal(self, number: int) -> bool:
        """Send a signal to the server and its children; whether one of them is there."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)
            return True
        return False

    def _ended(self) -> BackendError:
        code = self.exit_code or 0
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return self._failed(f"The server has ended: it {how}.")

    def _failed(self, what: str) -> BackendError:
        return BackendError(f"{what} Its log is {self.log}, and ends with:\n{self.last_lines()}")


async def is_healthy(client: httpx.AsyncClient, url: str, seconds: float = 10.0) -> bool:
    """Whether the server at ``url``, which ends with /v1, says that it is well."""
    with suppress(httpx.HTTPError):
        address = url.removesuffix("/v1") + "/health"
        return (await bounded_request(client, "GET", address, timeout=seconds)).is_success
    return False


@asynccontextmanager
async def local_server(model: Path, *, ready_s: float = 180.0) -> AsyncIterator[ServerProcess]:
    """A server on this machine during the ``async with`` block. On Linux it also ends if this process is killed.

    Args:
        model: a folder as `save_pretrained` writes it, with its tokenizer.
        ready_s: how long to wait for its first answer, in seconds.

    Raises:
        UsageError: there is no model in the folder.
        BackendError: the server does not start; the message has the end of its log.
    """
    server = Server(local_model(str(model)), "transformers", "cpu", free_port(LOOPBACK), environment=_LOCAL)
    with tempfile.TemporaryDirectory(prefix="rlfactory-judge-", ignore_cleanup_errors=True) as folder:
        process = ServerProcess(server, Path(folder) / "server.log", grace_s=3.0)  # it has no state to save
        try:
            await process.wait_until_ready(ready_s)
            yield process
        finally:
            await process.stop()
