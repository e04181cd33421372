"""Ollama's Modelfile: its template writes conversations as the run's chat format does, or there is none.

The Go templates themselves were compared with these conversations by Go's text/template, by hand.
"""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("tokenizers", reason="needs rlfactory-core[local]")

from chat_tokenizers import make_tokenizer, published
from rlfactory_devkit.tokenizers import tiny_tokenizer

from rlfactory_core.chat.settings import ChatConfig
from rlfactory_core.errors import ModelError
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.protocols import ChatFormat
from rlfactory_core.runner.making import make_chat
from rlfactory_core.runner.modelfile import modelfile

PLAIN = (  # SmolLM2's, which shows no tools
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}"
    "{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def chat_of(tokenizer: Any) -> ChatFormat:
    return make_chat(ChatConfig(), Registry())(tokenizer)


@pytest.mark.parametrize("name", ["qwen2_5", "qwen3", "qwen3_instruct_2507"])
def test_published_templates_of_qwen_become_templates_of_ollama(name: str) -> None:
    text = modelfile(chat_of(make_tokenizer(published(name))), {"rollout": {"max_tokens": 2048, "max_turn_tokens": 99}})
    assert text.startswith('FROM ./model.gguf\nTEMPLATE """{{ if and .System .Tools }}')
    assert text.count('"""') == 2
    assert '{{ "\\n{\\"type\\": \\"function\\", \\"function\\": " }}{{ $each.Function }}{{ "}" }}' in text
    assert ("{{ .Thinking }}" in text) == (name == "qwen3")
    assert text.endswith("PARAMETER temperature 0\nPARAMETER num_ctx 2048\nPARAMETER num_predict 99\n")
    assert 'PARAMETER stop "<|im_end|>"' in text


@pytest.mark.parametrize("tokenizer", [make_tokenizer(PLAIN), tiny_tokenizer("hermes"), tiny_tokenizer("mistral")])
def test_tools_are_described_as_in_training(tokenizer: Any) -> None:
    text = modelfile(chat_of(tokenizer), {})
    assert "{{ $each.Function }}" in text


@pytest.mark.parametrize("family", ["llama3", "deepseek-v3", "qwen3-coder", "gpt-oss"])
def test_a_family_that_a_go_template_cannot_write_is_refused(family: str) -> None:
    with pytest.raises(ModelError, match="cannot be written as a Go template"):
        modelfile(chat_of(tiny_tokenizer(family)), {})
