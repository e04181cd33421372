"""Models in llama.cpp's format: what is written is read again as it was, and what is not read exactly is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs rlfactory-core[local]")
pytest.importorskip("gguf", reason="needs rlfactory-core[local]")

import transformers  # noqa: E402
from chat_tokenizers import LLAMA, QWEN, make_tokenizer  # noqa: E402
from rlfactory_devkit.tokenizers import chat_template  # noqa: E402
from tiny_models import RAGGED  # noqa: E402

from rlfactory_core.engines.gguf.splits import SPLITS, set_split, split_name  # noqa: E402
from rlfactory_core.engines.gguf.writing import QUANTIZATIONS, write_gguf  # noqa: E402
from rlfactory_core.engines.local.model.loading import load_pretrained, load_tokenizer, local_model  # noqa: E402
from rlfactory_core.errors import ModelError  # noqa: E402

TEXT = '<|im_start|>user\n  12 héllo 3456\'s\n\n  x<tool_call>{"a": 1}</tool_call><|eot_id|><|endoftext|>'
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RLFACTORY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def write_model(folder: Path, family: str = "qwen3", **config: Any) -> Any:
    """A random model of a family with a small tokenizer; three rows of its vocabulary have no token."""
    kind, template = (LLAMA, "llama3") if family == "llama" else (QWEN, "qwen3")
    tokenizer = make_tokenizer(chat_template(template), kind)
    name, arguments = RAGGED[family]
    arguments = {**arguments, "vocab_size": len(tokenizer) + 3, **config}
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(getattr(transformers, name)(**arguments)).eval()
    for parameter in model.parameters():
        parameter.data.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.arange(3, 40)[None]).logits


@pytest.mark.parametrize(
    ("family", "config"),
    [
        ("qwen3", {}),
        ("qwen2", {}),
        ("llama", {"rope_parameters": LLAMA3_ROPE, "max_position_embeddings": 16384}),
        ("llama", {"tie_word_embeddings": True}),
    ],
)
def test_a_file_is_the_model_that_was_written(family: str, config: dict[str, Any], tmp_path: Path, cache: Path) -> None:
    model = write_model(tmp_path / "model", family, **config)
    write_gguf(tmp_path / "model", tmp_path / "model.gguf", "f32")
    read, tokenizer = load_pretrained(str(tmp_path / "model.gguf"), torch.device("cpu"), torch.float32)
    assert torch.equal(logits(read), logits(model))
    assert read.config.rope_parameters == model.config.rope_parameters
    original = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    for special in (True, False):
        ids = tokenizer(TEXT, add_special_tokens=special).input_ids
        assert ids == original(TEXT, add_special_tokens=special).input_ids
        assert tokenizer.decode(ids) == original.decode(ids)
    for name in ("chat_template", "eos_token_id", "bos_token_id", "pad_token_id", "unk_token_id"):
        assert getattr(tokenizer, name) == getattr(original, name), name
    # It is read once.
    (folder,) = (cache / "gguf").glob("model-*")
    assert local_model(str(tmp_path / "model.gguf")) == str(folder)


@pytest.mark.parametrize(("quantization", "most"), [*zip(QUANTIZATIONS, (0.0, 0.01, 0.1, 0.3), strict=True)])
def test_fewer_bits_change_the_model_by_as_much_as_they_have_to(quantization: str, most: float, tmp_path: Path) -> None:
    model = write_model(tmp_path / "model")
    write_gguf(tmp_path / "model", tmp_path / "small.gguf", quantization)
    read, _ = load_pretrained(str(tmp_path / "small.gguf"), torch.device("cpu"), torch.float32)
    error = float((logits(read) - logits(model)).abs().max())
    assert error <= most
    assert (error > 0) == (quantization != "f32")


@pytest.mark.parametrize("name", SPLITS)
def test_the_rule_of_a_tokenizer_is_recognised(name: str) -> None:
    from tokenizers import Tokenizer, models

    backend = Tokenizer(models.BPE())
    set_split(backend, name, "x.gguf")
    assert split_name(backend) == name


def test_digits_of_smollm_are_tokens_of_their_own() -> None:
    """transformers reads the spaces before a number otherwise, without an error."""
    backend = make_tokenizer().backend_tokenizer
    copied = type(backend).from_str(backend.to_str())
    set_split(copied, "smollm", "x.gguf")
    pieces = [piece for piece, _ in copied.pre_tokenizer.pre_tokenize_str("a  12")]
    assert pieces == ["a", "ĠĠ", "1", "2"]
    with pytest.raises(ModelError, match="by the rule 'deepseek-llm'"):
        set_split(copied, "deepseek-llm", "x.gguf")


def test_a_tokenizer_beside_the_file_is_not_taken_for_its_own(tmp_path: Path) -> None:
    write_model(tmp_path / "model")
    write_gguf(tmp_path / "model", tmp_path / "model" / "model.gguf")
    (tmp_path / "model" / "tokenizer.json").write_text("{}")
    assert load_tokenizer(str(tmp_path / "model" / "model.gguf")).eos_token == "<|im_end|>"


def test_a_damaged_or_a_foreign_file_is_refused_and_leaves_nothing(tmp_path: Path, cache: Path) -> None:
    write_model(tmp_path / "model")
    whole, file = tmp_path / "whole.gguf", tmp_path / "file.gguf"
    write_gguf(tmp_path / "model", whole)
    data = whole.read_bytes()
    for wrong, reason in (
        (b"", "is no GGUF file"),
        (b"PK\x03\x04" + data, "is no GGUF file"),
        (data[:900], "damaged or cut off"),
        (data[:4] + b"\x01" + data[5:], "has version 1 of GGUF"),
        (data[: len(data) // 2], "cannot be read"),
        (data.replace(b"qwen3", b"qwenX"), "cannot be read"),
        (data.replace(b"blk.1.ffn_up", b"blk.1.ffn_gr"), "is not read exactly"),
    ):
        file.write_bytes(wrong)
        with pytest.raises(ModelError, match=reason) as refused:
            local_model(str(file))
        assert f"'{file}'" in str(refused.value)
    with pytest.raises(ModelError, match="There is no file"):
        local_model(str(tmp_path / "other.gguf"))
    assert not [path for path in cache.glob("gguf/*") if path.is_dir()]


@pytest.mark.parametrize(
    ("family", "config", "reason"),
    [
        ("gemma3", {}, "type 'gemma3_text' is not written"),
        ("qwen3", {"hidden_act": "gelu"}, "hidden_act=gelu"),
        ("llama", {"attention_bias": True}, "has biases"),
    ],
)
def test_a_model_that_would_be_another_one_is_refused(
    family: str, config: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    write_model(tmp_path / "model", family, **config)
    with pytest.raises(ModelError, match=reason):
        write_gguf(tmp_path / "model", tmp_path / "model.gguf")


def test_a_tokenizer_of_another_kind_is_refused(tmp_path: Path) -> None:
    write_model(tmp_path / "model")
    file = tmp_path / "model" / "tokenizer.json"
    core = json.loads(file.read_text(encoding="utf-8"))
    core["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = r"\p{L}+"
    file.write_text(json.dumps(core), encoding="utf-8")
    with pytest.raises(ModelError, match="tokenizer is not written as GGUF"):
        write_gguf(tmp_path / "model", tmp_path / "model.gguf")
