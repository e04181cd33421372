"""`rlfactory export`: each copy of a run's model answers as the model does, and one that does not is not written."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml
from runs import TINY_TASK, Cli, summary

torch = pytest.importorskip("torch", reason="needs rlfactory-core[local]")
pytest.importorskip("gguf", reason="needs rlfactory-core[local]")

pytestmark = pytest.mark.slow

SMALL = ("train.workers=1", "rollout.max_tokens=320", "eval.limit=4", "--steps", "1")
PROVED = re.compile(r"proved: (.+) gives the 4 greedy answers of the run's model \(\d+ tokens\)")


@pytest.fixture(scope="module")
def run(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has trained adapters on the tiny task."""
    pytest.importorskip("peft", reason="needs rlfactory-core[lora]")
    from rlfactory_core.cli.main import invoke

    out = tmp_path_factory.mktemp("lora") / "run"
    keys = ("train.lora.rank=4", "train.lr=1e-2")
    given = ("--plugin", TINY_TASK, "--model", str(tiny_model), "--out", str(out))
    assert invoke(["run", *given, *keys, *SMALL]) == 0
    return out


def test_each_copy_answers_as_the_run_s_model(cli: Cli, run: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    read = {"folder": "transformers", "adapter": "peft", "gguf": "transformers", "ollama": "transformers"}
    for to, library in read.items():
        done = cli("export", run, "--to", to)
        assert done.code == 0, done.err
        found = PROVED.search(" ".join(done.out.split()))
        assert found, done.out
        assert found[1].startswith(library)
    exports = run / "exports"
    assert sorted(path.name for path in exports.iterdir()) == ["adapter", "folder", "ollama", "run-f16.gguf"]
    folder = exports / "folder"
    ids = torch.arange(1, 40)[None]
    latest = AutoModelForCausalLM.from_pretrained(run / "checkpoints" / "latest")(ids).logits
    assert torch.equal(AutoModelForCausalLM.from_pretrained(folder)(ids).logits, latest)
    assert AutoTokenizer.from_pretrained(folder).chat_template
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"]
    assert "trained on the task `tiny_task.py`" in (folder / "README.md").read_text()
    modelfile = (exports / "ollama" / "Modelfile").read_text()
    assert modelfile.startswith('FROM ./model.gguf\nTEMPLATE """')
    assert 'PARAMETER stop "<|im_end|>"' in modelfile


def test_what_was_exported_is_a_model_to_start_from(cli: Cli, run: Path, tmp_path: Path) -> None:
    """A GGUF file, and an adapter on which the training goes on where it was."""
    file, after = tmp_path / "mine.gguf", summary(run)["eval"]["after"]
    assert cli("export", run, "--to", "gguf", "--quantize", "f32", "--out", file).code == 0
    adapter = run / "checkpoints" / "latest" / "adapter"
    for model, keys in ((file, ()), (adapter, ("train.lora.rank=4",)), (run, ())):
        out = tmp_path / f"from-{model.name}"
        done = cli("run", "--plugin", TINY_TASK, "--model", model, "--out", out, "train.lr=1e-12", *keys, *SMALL)
        assert done.code == 0, done.err
        before = summary(out)["eval"]["before"]
        assert {name: before[name] for name in ("exact_match", "reward")} == {
            name: after[name] for name in ("exact_match", "reward")
        }
    assert "step-1" in done.out  # it says which checkpoint of the run
    assert (tmp_path / "from-adapter" / "checkpoints" / "latest" / "adapter" / "adapter_config.json").is_file()
    told = cli.refusal("run", "--plugin", TINY_TASK, "--model", adapter, "train.lora.rank=8", *SMALL)
    assert "train.lora.rank=8 (the adapter has 4)" in told


def wider(tiny_model: Path, folder: Path) -> Path:
    """A random model with layers of 64 and 128 inputs, and the tokenizer of the tiny one."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2}
    torch.manual_seed(0)
    config = AutoConfig.from_pretrained(tiny_model, **sizes, head_dim=16)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny_model).save_pretrained(folder)
    return folder


def test_adapters_beside_a_base_in_4_bits(cli: Cli, tiny_model: Path, tmp_path: Path) -> None:
    """They are resumed to the bit; the merged copy and the adapter beside its base in 4 bits answer as the run."""
    pytest.importorskip("bitsandbytes", reason="needs rlfactory-core[bits]")
    base = wider(tiny_model, tmp_path / "base")
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    keys = (
        "train.lora.base_bits=4",
        "train.lora.rank=4",
        "train.lr=1e-2",
        "train.kl=0.01",
        "eval.sampled=false",
        *SMALL[:-2],
    )
    for out, steps in ((whole, 2), (parts, 1)):
        given = ("--plugin", TINY_TASK, "--model", base, "--out", out, "rollout.deterministic=true")
        done = cli("run", *given, *keys, "--steps", steps)
        assert done.code == 0, done.err
    other = cli.refusal("run", "--resume", parts, "train.steps=2", "train.lora.base_bits=null")
    assert f"train.lora.base_bits=None: the checkpoints in {parts} have 4" in other
    assert cli("run", "--resume", parts, "train.steps=2").code == 0
    weights = [(run / "checkpoints" / "latest" / "model.safetensors").read_bytes() for run in (whole, parts)]
    assert weights[0] == weights[1]
    for to, library in (("folder", "transformers"), ("adapter", "peft")):
        done = cli("export", whole, "--to", to)
        assert done.code == 0, done.err
        said = " ".join(done.out.split())
        assert f"proved: {library}" in said
        assert ("beside its base in 4 bits" in said) == (to == "adapter")


def test_a_run_of_verl_is_exported_like_any_other(cli: Cli, run: Path, tmp_path: Path) -> None:
    """Its checkpoints link to the Hugging Face folder in verl's own; verl itself is not needed."""
    verl = tmp_path / "verl-run"
    shutil.copytree(run, verl, symlinks=True, ignore=shutil.ignore_patterns("checkpoints", "exports"))
    policy = verl / "checkpoints" / "verl" / "global_step_1" / "actor" / "huggingface"
    shutil.copytree(run / "checkpoints" / "step-1", policy)
    (policy.parents[1] / "data.pt").touch()
    (verl / "checkpoints" / "step-1").symlink_to("verl/global_step_1/actor/huggingface")
    (verl / "checkpoints" / "latest").symlink_to("step-1")
    config = yaml.safe_load((verl / "config.yaml").read_text())
    (verl / "config.yaml").write_text(yaml.safe_dump({**config, "engine": "verl", "plugins": {"verl": {"gpus": 1}}}))
    for to in ("folder", "adapter", "gguf", "ollama"):
        done = cli("export", verl, "--to", to)
        assert done.code == 0, done.err
        assert PROVED.search(" ".join(done.out.split())), done.out
    assert "1 steps" in (verl / "exports" / "folder" / "README.md").read_text()


def test_a_copy_that_answers_otherwise_is_not_written(
    cli: Cli, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rlfactory_core.engines.gguf import writing

    monkeypatch.setattr(writing, "_loader", lambda opened, name, config: lambda: -opened.get_tensor(name).numpy())
    told = cli.refusal("export", run, "--to", "gguf", "--out", tmp_path / "out" / "wrong.gguf")
    assert "The copy does not answer as the run's model" in told
    assert not [*(tmp_path / "out").iterdir()]


def test_what_cannot_be_exported_is_refused(cli: Cli, run: Path, tiny_model: Path, tmp_path: Path) -> None:
    def refused(*words: object) -> str:
        return cli.refusal("export", run, *words)

    taken = tmp_path / "taken"
    taken.mkdir()
    assert "exists. Remove it" in refused("--to", "folder", "--out", taken)
    assert "--quantize is of a GGUF file" in refused("--to", "folder", "--quantize", "f16")
    assert "ends in .gguf" in refused("--to", "gguf", "--out", tmp_path / "model.bin")
    assert "no checkpoint '7'; it has step-1" in refused("--to", "folder", "--checkpoint", "7")
    assert "--to hub needs --repo" in refused("--to", "hub")
    assert "no run at" in cli.refusal("export", tmp_path, "--to", "folder")
    whole = tiny_model.parent.parent
    assert "has no adapter" in cli.refusal("export", whole, "--to", "adapter", "--out", tmp_path / "adapter")


class Hub(BaseHTTPRequestHandler):
    """As much of the hub's HTTP API as a push takes; ``token`` is the one that may write."""

    repos: Mapping[str, dict[str, Any]]
    token = "hf_right"

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def _answer(self, data: object, status: int = 200) -> None:
        body = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else self._chunks()
        if self.headers.get("Authorization") != f"Bearer {self.token}":
            self._answer({"error": "Invalid username or password."}, 401)
        elif self.path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked.get('organization') or 'me'}/{asked['name']}"
            self.server.repos[name] = {"asked": asked, "files": {}}  # type: ignore[attr-defined]
            self._answer({"url": f"http://{self.headers['Host']}/{name}", "name": name})
        elif self.path == "/api/validate-yaml":
            self._answer({"errors": [], "warnings": []})
        elif "/preupload/" in self.path:
            files = [{"path": each["path"], "uploadMode": "regular"} for each in json.loads(body)["files"]]
            self._answer({"files": [{**each, "shouldIgnore": False} for each in files]})
        elif "/commit/" in self.path:
            name = self.path.split("/commit/")[0].removeprefix("/api/models/")
            lines = [json.loads(line) for line in body.splitlines()]
            files = {line["value"]["path"]: line["value"]["content"] for line in lines if line["key"] == "file"}
            self.server.repos[name]["files"] |= files  # type: ignore[attr-defined]
            address = f"http://{self.headers['Host']}/{name}/commit/1"
            self._answer({"success": True, "commitOid": "1", "commitUrl": address})
        else:
            self._answer({}, 404)

    def do_GET(self) -> None:
        name = "/".join(self.path.removeprefix("/api/models/").split("?")[0].split("/")[:2])
        repo = self.server.repos.get(name)  # type: ignore[attr-defined]
        if repo is None:
            self._answer({"error": "Repository not found"}, 404)
            return
        files = [{"type": "file", "path": path, "size": 1, "oid": "1"} for path in repo["files"]]
        if "/tree/" in self.path:
            self._answer(files)
        else:
            self._answer(
                {"id": name, "modelId": name, "sha": "1", "siblings": [{"rfilename": it["path"]} for it in files]}
            )

    def _chunks(self) -> bytes:
        found = b""
        while size := int(self.rfile.readline(), 16):
            found += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return found


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    import huggingface_hub.constants as constants
    from huggingface_hub import HfApi

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.repos = {}  # type: ignore[attr-defined]
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    for name in ("HF_ENDPOINT", "ENDPOINT"):
        monkeypatch.setattr(constants, name, address, raising=False)
    defaults = HfApi.__init__
    monkeypatch.setattr(HfApi, "__init__", lambda self, **given: defaults(self, endpoint=address, **given))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_model_is_pushed_to_the_hub(cli: Cli, run: Path, hub: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    told = cli.refusal("export", run, "--to", "hub", "--repo", "me/tiny")
    assert "The hub refuses to write to me/tiny (HTTP 401" in told
    assert "hf auth login" in told
    monkeypatch.setenv("HF_TOKEN", Hub.token)
    done = cli("export", run, "--to", "hub", "--repo", "me/tiny", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["place"].endswith("/me/tiny")
    pushed = hub.repos["me/tiny"]
    # Newer releases of huggingface_hub name the visibility.
    assert pushed["asked"].get("private") is True or pushed["asked"].get("visibility") == "private"
    assert {"config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja", "README.md"} <= {
        *pushed["files"]
    }
    hub.shutdown()
    hub.server_close()
    gone = cli("export", run, "--to", "hub", "--repo", "me/tiny")
    assert gone.code == 2
    assert "hf upload me/tiny FOLDER" in gone.err
