"""Starting stand-ins for a judge's servers, and seeing that none of them is left."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import judge_stub_server
from process_tree import is_running
from rlfactory_judge.serving.servers import LOOPBACK, Server, free_port

MODEL = "stub"
_PACKAGE = """
import sys
from pathlib import Path
sys.path.insert(0, {support!r})
from judge_stub_server import serve
def Serve(model: str, host: str = "", port: int = 0, device: str = ""):
    serve(host, port, model, Path({folder!r}))
"""


@dataclass(frozen=True)
class Program(Server):
    """A server that is any program."""

    words: tuple[str, ...] = ()

    def command(self) -> list[str]:
        return list(self.words)


def program(*words: str, port: int = 0, model: str = MODEL, environment: Mapping[str, str] | None = None) -> Program:
    return Program(model, "transformers", "cpu", port, environment=environment or {}, words=words)


def stub_server(folder: Path, model: str = MODEL, port: int = 0) -> Program:
    """A stand-in at a free port, unless one is given; ``folder`` is what it takes orders from."""
    port = port or free_port(LOOPBACK)
    return program(
        sys.executable, judge_stub_server.__file__, LOOPBACK, str(port), model, str(folder), port=port, model=model
    )


def stub_transformers(place: Path, folder: Path) -> dict[str, str]:
    """An environment in which transformers' command ``serve`` is a stand-in."""
    package = place / "transformers" / "cli"
    package.mkdir(parents=True)
    (place / "transformers" / "__init__.py").touch()
    (package / "__init__.py").touch()
    support = str(Path(judge_stub_server.__file__).parent)
    (package / "serve.py").write_text(_PACKAGE.format(support=support, folder=str(folder)))
    return {"PYTHONPATH": str(place)}


def save_tiny_model(folder: Path) -> Path:
    """A random Qwen3 of half a million weights, which vLLM and transformers can serve."""
    from rlfactory_core.engines.local.tiny.tiny_model import build_model, build_tokenizer
    from rlfactory_core.tiny import TinyModelRecipe

    texts = ["Score the answer from 0 to 10. The capital of France is Paris."] * 4
    architecture = {
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "max_position_embeddings": 1024,
    }
    architecture |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32}
    recipe = TinyModelRecipe(architecture, lambda: texts, 300, (), lambda _: (), "")
    tokenizer = build_tokenizer(texts, recipe.vocab_size)
    # Else transformers' server reads tool calls out of what a random model babbles, and answers 500 where it cannot.
    tokenizer.response_template = {
        "defaults": {"role": "assistant"},
        "start_anchor": "<|im_start|>assistant\n",
        "fields": {"content": {"close_pattern": r"<\|im_end\|>", "content": "text"}},
    }
    build_model(recipe, tokenizer, seed=0).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def pids(folder: Path, name: str = "") -> set[int]:
    """Of the stand-ins (``server``) and their children (``child``) that were ever started."""
    return {int(path.stem.rpartition("-")[2]) for path in folder.glob(f"{name}*.pid")}


def living(folder: Path, name: str = "") -> set[int]:
    """Those of them that still run."""
    return {pid for pid in pids(folder, name) if is_running(pid)}
