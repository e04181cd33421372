"""How servers are called, and where."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest
from rlfactory_judge.serving import servers
from rlfactory_judge.serving.servers import Server, choose_backend, free_port, local_model, reasoning_parser

from rlfactory_core.errors import MissingExtraError, UsageError


def test_vllm_gets_replicas_prefix_caching_and_the_models_reasoning_parser() -> None:
    extra = ("--max-model-len", "16384")
    made = Server("Qwen/QwQ-32B", "vllm", "cuda", 8001, replicas=2, tensor_parallel=4, extra=extra)
    words = " ".join(made.command())
    assert words.startswith(f"{sys.executable} -m vllm.entrypoints.cli.main serve Qwen/QwQ-32B")
    assert "--port 8001" in words
    assert "--data-parallel-size 2 --tensor-parallel-size 4" in words
    assert "--enable-prefix-caching" in words
    assert "--reasoning-parser deepseek_r1" in words
    assert words.endswith("--max-model-len 16384")
    assert "CUDA_VISIBLE_DEVICES" not in made.variables()  # as the user has set it


def test_vllms_build_for_cpus_is_called_by_its_module() -> None:
    words = " ".join(Server("/models/judge", "vllm", "cpu", 8001).command())
    assert words.startswith(f"{sys.executable} -m vllm.entrypoints.openai.api_server --model /models/judge")
    assert "parallel" not in words


def test_transformers_serves_one_model() -> None:
    made = Server("/models/judge", "transformers", "cpu", 8000, extra=("--continuous-batching",))
    words = " ".join(made.command())
    assert "/models/judge --host 127.0.0.1 --port 8000 --device cpu" in words
    assert words.endswith("--continuous-batching")
    assert made.variables()["CUDA_VISIBLE_DEVICES"] == ""


@pytest.mark.parametrize(
    ("model", "parser"),
    [
        ("Qwen/QwQ-32B", "deepseek_r1"),
        ("/models/QwQ-32B-AWQ", "deepseek_r1"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "deepseek_r1"),
        ("Qwen/Qwen3-8B", "qwen3"),
        ("Qwen/Qwen3-4B-Instruct-2507", None),
        ("Qwen/Qwen2.5-7B-Instruct", None),
        ("openai/gpt-oss-20b", "openai_gptoss"),
        ("/home/qwq/plain-model", None),
    ],
)
def test_reasoning_parsers_follow_the_models_name(model: str, parser: str | None) -> None:
    assert reasoning_parser(model) == parser


@pytest.mark.parametrize(
    ("extra", "served"),
    [
        ((), "m"),
        (("--served-model-name", "judge", "--seed", "1"), "judge"),
        (("--served-model-name=judge",), "judge"),
    ],
)
def test_requests_name_the_model_as_the_server_does(extra: tuple[str, ...], served: str) -> None:
    assert Server("m", "vllm", "cuda", 8000, extra=extra).model_id == served


def test_servers_for_everybody_are_named_by_this_machines_name() -> None:
    server = Server("m", "vllm", "cuda", 8000, "0.0.0.0")
    assert server.url == f"http://{socket.gethostname()}:8000/v1"
    assert server.probe_url == "http://127.0.0.1:8000/v1"
    assert Server("m", "vllm", "cuda", 8000, "::1").url == "http://[::1]:8000/v1"


def test_a_missing_backend_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="pip install vllm"):
        choose_backend("vllm", "cuda")
    assert choose_backend("auto", "cuda") == choose_backend("transformers", "cpu") == "transformers"


def test_vllm_is_chosen_on_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "find_spec", lambda name: name)
    assert choose_backend("auto", "cuda") == choose_backend("vllm", "cpu") == "vllm"
    assert choose_backend("auto", "cpu") == "transformers"


def test_a_folder_becomes_absolute_and_a_name_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "judge").mkdir()
    monkeypatch.chdir(tmp_path)
    assert local_model("Qwen/QwQ-32B") == "Qwen/QwQ-32B"
    with pytest.raises(UsageError, match=r"config\.json is missing"):
        local_model("judge")
    (tmp_path / "judge" / "config.json").write_text("{}")
    assert local_model("judge") == str(tmp_path / "judge")
    with pytest.raises(UsageError, match="There is no folder"):
        local_model("./absent")


def test_ports_that_are_taken_are_refused_before_anything_starts() -> None:
    port = free_port("127.0.0.1")
    assert free_port("127.0.0.1", port) == port
    refused = pytest.raises(UsageError, match=rf"Port {port} .*Choose another --port")
    with socket.create_server(("127.0.0.1", port)), refused:
        free_port("127.0.0.1", port)
    with pytest.raises(UsageError, match="70000"):
        free_port("127.0.0.1", 70000)
    with pytest.raises(UsageError, match=r"listen on 192\.0\.2\.1"):
        free_port("192.0.2.1")
