"""Adapters beside merged weights: peft reads what is written, and verl's folders become plain ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs rlfactory-core[local]")
peft = pytest.importorskip("peft", reason="needs rlfactory-core[lora]")

from rlfactory_verl.adapters import INDEX, merge_adapters  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3ForCausalLM  # noqa: E402

from rlfactory_core.algo.settings import LoraConfig  # noqa: E402

LORA = LoraConfig(rank=2, alpha=6, targets="q_proj,down_proj")
IDS = torch.arange(1, 20)[None]


def trained_with_adapters(base: Path) -> torch.nn.Module:
    """A model with adapters that have been trained, and its start in ``base``."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = Qwen3Config(vocab_size=32, num_key_value_heads=1, head_dim=8, tie_word_embeddings=True, **sizes)
    model = Qwen3ForCausalLM(config)
    model.save_pretrained(base)
    options = peft.LoraConfig(r=LORA.rank, lora_alpha=LORA.alpha, target_modules=LORA.targets.split(","))
    adapted = peft.get_peft_model(model, options)
    for name, parameter in adapted.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    return adapted


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(IDS).logits


@pytest.mark.parametrize("files", [1, 3])
def test_a_folder_with_pefts_names_gets_merged_weights_and_its_adapters(tmp_path: Path, files: int) -> None:
    base, folder = tmp_path / "base", tmp_path / "saved"
    trained = trained_with_adapters(base)
    state = {name: value.clone() for name, value in trained.state_dict().items() if "lm_head" not in name}
    trained.base_model.model.config.save_pretrained(folder)
    names = sorted(state)
    shards = {f"model-{n}.safetensors" if files > 1 else "model.safetensors": names[n::files] for n in range(files)}
    for file, own in shards.items():
        save_file({name: state[name].contiguous() for name in own}, str(folder / file), {"format": "pt"})
    if files > 1:
        index = {"metadata": {}, "weight_map": {name: file for file, own in shards.items() for name in own}}
        (folder / INDEX).write_text(json.dumps(index))

    merge_adapters(folder, LORA, str(base))

    wanted = logits(trained)
    assert torch.allclose(logits(AutoModelForCausalLM.from_pretrained(folder)), wanted, atol=1e-5)
    start = AutoModelForCausalLM.from_pretrained(base)
    assert not torch.allclose(logits(start), wanted, atol=1e-2)
    assert torch.allclose(logits(peft.PeftModel.from_pretrained(start, str(folder / "adapter"))), wanted, atol=1e-5)
    written = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    merge_adapters(folder, LORA, str(base))  # what is merged stays as it is
    assert written == {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    assert all("lora" not in name for file in folder.glob("*.safetensors") for name in load_file(str(file)))
