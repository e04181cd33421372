"""Checkpoints: whole or not there at all, whatever happens while one is written."""

from __future__ import annotations

import copy
import errno
import json
import shutil
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import make_model
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from rlfactory_core.engines.base import Checkpoint
from rlfactory_core.engines.exports import NOWHERE, Origin
from rlfactory_core.engines.local.engine import LocalEngine
from rlfactory_core.engines.local.learning.optimizer import Optimizer, OptimizerOptions
from rlfactory_core.engines.local.model.loading import load_pretrained, write_model
from rlfactory_core.engines.local.model.policy import RaggedPolicy
from rlfactory_core.engines.local.tiny.tiny_model import build_tokenizer
from rlfactory_core.engines.model_config import with_older_keys
from rlfactory_core.errors import CheckpointError
from rlfactory_core.training import checkpoints as module
from rlfactory_core.training.checkpoints import (
    STATES,
    checkpoints,
    mark_best,
    roll_back,
    save_checkpoint,
    saved,
)
from rlfactory_core.training.stopping import Until


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return build_tokenizer(["one two three", "two three four"], 300)


@pytest.fixture
def model() -> Any:
    return make_model("qwen3")


@dataclass
class Writer:
    """Writes what the local engine writes."""

    model: Any
    tokenizer: Any
    origin: Origin = NOWHERE
    optimizer: dict[str, Any] = field(default_factory=dict)

    def save(self, made: Checkpoint, run: Mapping[str, Any]) -> None:
        write_model(made.folder, self.model, self.tokenizer, replace(self.origin, fallback=made.earlier))
        torch.save({**run, "optimizer": self.optimizer, "trainable": {}, "critic": {}}, made.state)


def save(folder: Path, writer: Writer, step: int, *, keep: int, tokens: float = 7.0) -> Path:
    run = {"step": step, "totals": {"tokens": tokens}}
    return save_checkpoint(folder, step, writer, run, keep=keep)  # type: ignore[arg-type]


def load(made: Path) -> Mapping[str, Any]:
    return LocalEngine().load(saved(made))


def files(folder: Path) -> set[str]:
    found = {path.name for path in folder.iterdir() if path.name != STATES}
    states = {path.stem for path in (folder / STATES).iterdir()}
    assert states == found - {"latest", "best"}  # one for each checkpoint
    return found


def test_a_checkpoint_is_a_hugging_face_folder_and_a_state(tmp_path: Path, model: Any, tokenizer: Any) -> None:
    RaggedPolicy(model)  # our attention must not reach the saved config
    optimizer = Optimizer(model, OptimizerOptions(lr=1e-3, muon_lr=0.01))
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step()
    made = save(tmp_path, Writer(model, tokenizer, optimizer=optimizer.state_dict()), 3, keep=2)
    assert made == tmp_path / "step-3"
    assert (tmp_path / "latest").resolve() == made.resolve()
    assert "rlfactory" not in (made / "config.json").read_text()
    loaded = AutoModelForCausalLM.from_pretrained(made)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), loaded.parameters(), strict=True))
    back = AutoTokenizer.from_pretrained(made)
    assert back("two three").input_ids == tokenizer("two three").input_ids
    assert back.chat_template == tokenizer.chat_template
    assert load(made) == {"step": 3, "totals": {"tokens": 7.0}}
    state = torch.load(saved(made).state, weights_only=True)
    Optimizer(loaded, OptimizerOptions(lr=1e-3, muon_lr=0.01)).load_state_dict(state["optimizer"])
    (tmp_path / STATES / "step-3.pt").rename(made / "trainer_state.pt")  # as earlier versions left it
    assert load(made)["step"] == 3


def test_old_checkpoints_go_and_latest_moves(tmp_path: Path, model: Any, tokenizer: Any) -> None:
    for step in (2, 9, 10, 100):
        save(tmp_path, Writer(model, tokenizer), step, keep=2)
    assert files(tmp_path) == {"step-10", "step-100", "latest"}
    assert (tmp_path / "latest").readlink() == Path("step-100")
    assert checkpoints(tmp_path)[0].name == "step-100"  # by number, not by name


def test_the_best_is_kept_beside_the_newest(tmp_path: Path, model: Any, tokenizer: Any) -> None:
    until = Until({}, 0, "success")
    for step, success in ((1, 0.2), (2, 0.6), (3, 0.6), (4, 0.5)):
        save(tmp_path, Writer(model, tokenizer), step, keep=1)
        if until.is_best({"success": success, "samples": 8}):
            mark_best(tmp_path, step, keep=1)
    assert files(tmp_path) - {"best"} == {"step-2", "step-4", "latest"}
    assert (tmp_path / "best").readlink() == Path("step-2")
    resumed = Until({}, 0, "success")
    resumed.load(until.state())
    assert not resumed.is_best({"success": 0.6, "samples": 8})
    assert resumed.is_best({"success": 0.7, "samples": 8})
    assert roll_back(tmp_path, 1) is None
    assert roll_back(tmp_path, 2) == 2
    assert (tmp_path / "best").exists()


def test_the_same_step_can_be_saved_again(tmp_path: Path, model: Any, tokenizer: Any) -> None:
    save(tmp_path, Writer(model, tokenizer), 5, keep=2)
    save(tmp_path, Writer(model, tokenizer), 5, keep=2, tokens=9.0)
    assert load(checkpoints(tmp_path)[0])["totals"] == {"tokens": 9.0}
    assert files(tmp_path) == {"step-5", "latest"}


@pytest.mark.parametrize("victim", ["model", "tokenizer", "state", "sync", "rename"])
def test_a_full_disk_leaves_the_old_checkpoint_intact(
    tmp_path: Path, model: Any, tokenizer: Any, victim: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, Writer(model, tokenizer), 1, keep=1)

    def full(*_args: Any, **_kwargs: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    target, name = {
        "model": (model, "save_pretrained"),
        "tokenizer": (tokenizer, "save_pretrained"),
        "state": (torch, "save"),
        "sync": (module.os, "fsync"),
        "rename": (Path, "rename"),
    }[victim]
    with monkeypatch.context() as patch:
        patch.setattr(target, name, full)
        with pytest.raises(CheckpointError, match=r"step 2 .*No space left.*intact") as caught:
            save(tmp_path, Writer(model, tokenizer), 2, keep=1)
    assert caught.value.exit_code == 2
    assert files(tmp_path) == {"step-1", "latest"}
    assert load(checkpoints(tmp_path)[0])["step"] == 1
    AutoModelForCausalLM.from_pretrained(tmp_path / "latest")
    save(tmp_path, Writer(model, tokenizer), 2, keep=1)  # room was made
    assert files(tmp_path) == {"step-2", "latest"}


@pytest.mark.skipif(sys.platform != "linux", reason="limits the size of files through setrlimit")
@pytest.mark.parametrize("limit", [1_000, 20_000])
def test_files_that_really_cannot_be_written(tmp_path: Path, model: Any, tokenizer: Any, limit: int) -> None:
    """Each library has its own error for it; all of them end as ours."""
    import resource

    save(tmp_path, Writer(model, tokenizer), 1, keep=1)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
        with pytest.raises(CheckpointError, match="could not be written"):
            save(tmp_path, Writer(model, tokenizer), 2, keep=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert files(tmp_path) == {"step-1", "latest"}


def test_what_a_killed_process_left_behind_is_ignored_and_cleaned(tmp_path: Path, model: Any, tokenizer: Any) -> None:
    save(tmp_path, Writer(model, tokenizer), 1, keep=2)
    (tmp_path / ".step-2.partial").mkdir()
    (tmp_path / ".step-2.partial" / "model.safetensors").write_bytes(b"half")
    (tmp_path / STATES / ".step-2.partial.pt").write_bytes(b"half")
    (tmp_path / ".latest.partial").symlink_to("step-2")
    assert checkpoints(tmp_path)[0].name == "step-1"
    save(tmp_path, Writer(model, tokenizer), 2, keep=2)
    assert files(tmp_path) == {"step-1", "step-2", "latest"}


def test_nothing_to_resume_from(tmp_path: Path) -> None:
    assert checkpoints(tmp_path / "checkpoints") == []


@pytest.mark.parametrize("content", [None, b"", b"torn"])
def test_a_torn_state_is_said(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / STATES).mkdir()
        (tmp_path / STATES / "step-1.pt").write_bytes(content)
    with pytest.raises(CheckpointError, match="cannot be read"):
        load(tmp_path / "step-1")


OLDER = {  # of transformers 4: what each configuration has beside `rope_parameters`
    "llama": ({"rope_type": "default", "rope_theta": 5e5}, {"rope_theta": 5e5, "rope_scaling": None}),
    "gpt_neox": (
        {"rope_type": "default", "rope_theta": 5e5, "partial_rotary_factor": 0.5},
        {"rotary_emb_base": 5e5, "rotary_pct": 0.5, "partial_rotary_factor": 0.5},
    ),
    "gemma3": (
        {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 2e4},
        },
        {"rope_theta": 1e6, "rope_local_base_freq": 2e4, "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
    ),
    "qwen3_moe": ({"rope_type": "default", "rope_theta": 1e6}, {"rope_theta": 1e6, "num_experts": 4}),
}


@pytest.mark.parametrize("family", OLDER)
def test_the_config_has_the_keys_of_transformers_4_as_well(tmp_path: Path, tokenizer: Any, family: str) -> None:
    new, older = OLDER[family]
    model = make_model(family)
    model.config.rope_parameters = dict(new)
    write_model(tmp_path, model, tokenizer)
    config = json.loads((tmp_path / "config.json").read_text())
    assert {key: config[key] for key in older} == older
    assert AutoConfig.from_pretrained(tmp_path).rope_parameters == model.config.rope_parameters
    nested = with_older_keys({"text_config": {"rope_parameters": new, "model_type": config["model_type"]}})
    assert nested["text_config"].items() >= {key: older[key] for key in older if "experts" not in key}.items()


def test_what_training_does_not_change_is_the_start_models(tmp_path: Path, model: Any, tokenizer: Any) -> None:
    source, folder = tmp_path / "source", tmp_path / "run"
    model.save_pretrained(source)
    tokenizer.save_pretrained(source)
    config = json.loads((source / "config.json").read_text())
    del config["rope_parameters"], config["dtype"]
    theirs = {
        "config.json": {**config, "rope_theta": 10000.0, "attention_dropout": 0.1, "torch_dtype": "bfloat16"},
        "generation_config.json": {"eos_token_id": 0, "do_sample": False, "temperature": 0.6},  # which v5 calls invalid
        "tokenizer_config.json": {
            **json.loads((source / "tokenizer_config.json").read_text()),
            **{"tokenizer_class": "Qwen2Tokenizer", "chat_template": "{{ messages }}", "eos_token": "<|im_end|>"},
        },
        "vocab.json": {"a": 0},
        "preprocessor_config.json": {"size": 3},
    }
    for name, content in theirs.items():
        (source / name).write_text(json.dumps(content))
    for name in ("LICENSE", "README.md", "merges.txt", "trainer_state.pt", "model.safetensors.index.json"):
        (source / name).write_text("theirs")
    (source / "chat_template.jinja").unlink()
    start, tokens = load_pretrained(str(source), torch.device("cpu"), torch.float32)
    origin = Origin(str(source), (2, 0))
    made = save(folder, Writer(start, tokens, origin), 1, keep=1)

    names = {path.name for path in made.iterdir()}
    assert names == {*theirs, "LICENSE", "README.md", "merges.txt", "tokenizer.json", "model.safetensors"}
    for name in ("tokenizer_config.json", "vocab.json", "LICENSE", "preprocessor_config.json"):
        assert (made / name).read_bytes() == (source / name).read_bytes()
    written = json.loads((made / "config.json").read_text())
    assert (written["attention_dropout"], written["torch_dtype"]) == (0.1, "float32")
    assert written["rope_theta"] == written["rope_parameters"]["rope_theta"] == 10000.0
    generation = json.loads((made / "generation_config.json").read_text())
    assert generation == {**theirs["generation_config.json"], "eos_token_id": [0, 2]}
    assert {path.stat().st_mode & 0o777 for path in made.iterdir()} == {(source / "LICENSE").stat().st_mode & 0o777}

    shutil.rmtree(source)  # the next checkpoint takes them from this one
    again = save(folder, Writer(start, tokens, origin), 2, keep=1)
    assert {path.name for path in again.iterdir()} == names
    assert (again / "LICENSE").read_text() == "theirs"


def test_a_tokenizer_has_names_that_transformers_4_knows(tmp_path: Path, model: Any, tokenizer: Any) -> None:
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|x|>"]})
    write_model(tmp_path, model, tokenizer, Origin("", (2,)))
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert config["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert config["additional_special_tokens"] == ["<|x|>"]
    assert not isinstance(config.get("extra_special_tokens"), list)
    back = AutoTokenizer.from_pretrained(tmp_path)
    assert back("two <|x|> three").input_ids == tokenizer("two <|x|> three").input_ids
    assert back.all_special_tokens == tokenizer.all_special_tokens
    assert json.loads((tmp_path / "generation_config.json").read_text()).keys() >= {"eos_token_id"}
