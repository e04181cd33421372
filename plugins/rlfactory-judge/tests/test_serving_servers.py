"""How servers are called, which GPUs are whose, and what their last words mean."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest
from rlfactory_judge.serving import servers
from rlfactory_judge.serving.hints import hint, is_final, port_taken
from rlfactory_judge.serving.machine import check_free, free_ports, visible_gpus
from rlfactory_judge.serving.servers import (
    Replica,
    Served,
    choose_backend,
    launch,
    local_model,
    reasoning_parser,
    small_launch,
    split_gpus,
)

from rlfactory_core.errors import MissingExtraError, UsageError


def test_vllm_gets_its_gpus_prefix_caching_and_the_models_reasoning_parser() -> None:
    served = Served("Qwen/QwQ-32B", "vllm", "cuda", 4, ("--max-model-len", "16384"))
    made = launch(served, Replica(8001, gpus=("4", "5", "6", "7")))
    words = " ".join(made.command)
    assert words.startswith(f"{sys.executable} -m vllm.entrypoints.openai.api_server --model Qwen/QwQ-32B")
    assert "--port 8001" in words
    assert "--tensor-parallel-size 4" in words
    assert "--enable-prefix-caching" in words
    assert "--reasoning-parser deepseek_r1" in words
    assert words.endswith("--max-model-len 16384")
    assert made.environment["CUDA_VISIBLE_DEVICES"] == "4,5,6,7"


def test_transformers_serves_one_model() -> None:
    made = launch(Served("/models/judge", "transformers", "cpu", extra=("--continuous-batching",)), Replica(8000))
    words = " ".join(made.command)
    assert (
        "-m rlfactory_judge.serving.transformers_serve /models/judge --host 127.0.0.1 --port 8000 --device cpu" in words
    )
    assert words.endswith("--continuous-batching")
    assert made.environment["CUDA_VISIBLE_DEVICES"] == ""


def test_a_small_server_takes_one_thread_and_nothing_from_the_network() -> None:
    made = small_launch(Served("/models/judge", "vllm", "cpu", extra=("--dtype", "bfloat16")), Replica(8000))
    assert made.environment["OMP_NUM_THREADS"] == "1"
    assert made.environment["TOKENIZERS_PARALLELISM"] == "false"
    assert made.environment["HF_HUB_OFFLINE"] == "1"
    assert made.command[-2:] == ("--dtype", "bfloat16")  # the caller's word is the last


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
    assert Served("m", "vllm", "cuda", extra=extra).model_id == served


def test_servers_for_everybody_are_named_by_this_machines_name() -> None:
    replica = Replica(8000, "0.0.0.0")
    assert replica.url == f"http://{socket.gethostname()}:8000/v1"
    assert replica.probe_url == "http://127.0.0.1:8000/v1"
    assert Replica(8000, "::1").url == "http://[::1]:8000/v1"


def test_gpus_are_split_in_order() -> None:
    assert split_gpus(("0", "1", "2", "3", "4"), 2, 2) == (("0", "1"), ("2", "3"))


def test_too_few_gpus_are_counted() -> None:
    with pytest.raises(UsageError, match=r"--replicas 2 with --tp 4 need 8 GPUs, and 4 can be seen"):
        split_gpus(("0", "1", "2", "3"), 2, 4)
    with pytest.raises(UsageError, match=r"need 1 GPU, and 0 can be seen.*--device cpu"):
        split_gpus((), 1, 1)


@pytest.mark.parametrize(
    ("variable", "gpus"),
    [("2,3", ("2", "3")), ("", ()), ("-1", ()), ("0,-1,2", ("0",)), ("GPU-ab, 1", ("GPU-ab", "1"))],
)
def test_gpus_are_those_of_the_variable(monkeypatch: pytest.MonkeyPatch, variable: str, gpus: tuple[str, ...]) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    assert visible_gpus() == gpus


def test_without_the_variable_the_driver_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nprintf '0\\n1\\n'\n")
    program.chmod(0o700)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert visible_gpus() == ("0", "1")
    program.write_text("#!/bin/sh\nexit 9\n")
    assert visible_gpus() == ()


def test_a_missing_backend_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"transformers": ["accelerate"], "vllm": ["vllm"]}
    monkeypatch.setattr(servers, "_missing", lambda backend: found[backend])
    with pytest.raises(MissingExtraError, match="pip install vllm"):
        choose_backend("vllm", "cuda")
    with pytest.raises(MissingExtraError, match=r"accelerate.*pip install 'transformers\[serving\]'"):
        choose_backend("auto", "cpu")


def test_on_a_cpu_vllm_is_chosen_where_it_is_built_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "_missing", lambda backend: [])
    for of_cpu, expected in ((True, "vllm"), (False, "transformers")):
        monkeypatch.setattr(servers, "_vllm_of_cpu", lambda of_cpu=of_cpu: of_cpu)
        assert choose_backend("auto", "cpu") == expected
        assert choose_backend("auto", "cuda") == "vllm"


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
    ports = free_ports("127.0.0.1", 3)
    assert len({*ports}) == 3
    check_free("127.0.0.1", ports)
    refused = pytest.raises(UsageError, match=rf"Port {ports[1]} .*Choose another --port")
    with socket.create_server(("127.0.0.1", ports[1])), refused:
        check_free("127.0.0.1", ports)
    with pytest.raises(UsageError, match="70000"):
        check_free("127.0.0.1", (70000,))
    with pytest.raises(UsageError, match="cannot listen there"):
        free_ports("192.0.2.1", 1)


@pytest.mark.parametrize(
    ("words", "remedy", "final"),
    [
        (
            "[Errno 98] error while attempting to bind on address ('127.0.0.1', 80): address already in use",
            "port",
            False,
        ),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "--max-model-len", False),
        ("ValueError: No available memory for the cache blocks.", "memory", False),
        (
            "ValueError: Free memory on device (10/80 GiB) on startup is less than desired GPU memory utilization",
            "memory",
            False,
        ),
        ("OSError: We couldn't connect to 'https://huggingface.co' to load the files", "unknown", True),
        ("api_server.py: error: unrecognized arguments: --max-len", "follows --", True),
        ("No such option: --foo", "follows --", True),
        ("ValidationError: 1 validation error for ModelConfig", "does not fit the model", True),
        ("RuntimeError: No CUDA GPUs are available", "nvidia-smi", True),
        ("ModuleNotFoundError: No module named 'vllm'", "pip install", True),
        ("it was ended by signal 9", "It was killed", False),
        ("Traceback: KeyError 7", "", False),
    ],
)
def test_last_words_have_remedies(words: str, remedy: str, final: bool) -> None:
    assert remedy in hint(words)
    assert bool(hint(words)) == bool(remedy)
    assert is_final(words) is final
    assert port_taken(words) is ("in use" in words)
