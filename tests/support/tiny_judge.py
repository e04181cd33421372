"""A judge's model in miniature, random and yet readable: for servers that enforce a form.

What it says is noise that depends on the prompt, but a constant in its residual stream prefers the tokens that end a
string, a number or an object. Under a JSON schema its replies are therefore short and whole.
"""

from __future__ import annotations

from pathlib import Path

import torch

SIZE, HEAD = 64, 32  # vLLM's attention on a CPU has kernels for heads of 32 and more
SPECIAL = ("<|pad|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
PREFERRED = {'"': 9.0, "}": 8.0, "]": 7.0, ",": 5.5, ":": 5.0, **dict.fromkeys("0123456789", 3.0)}
SHUNNED = {"-": -6.0, ".": -6.0, "e": -3.0, "E": -6.0, "\\": -6.0, **dict.fromkeys(" \t\n\r", -6.0)}
NOISE = 0.5  # of a token's preference, from prompt to prompt
CONSTANT = 8.0


def tiny_judge(folder: Path, *, context: int = 16384, seed: int = 0) -> Path:
    """Write it as a Hugging Face folder: bytes for tokens, one layer, the largest ``context`` in tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate((*SPECIAL, *letters))}
    raw = Tokenizer(models.BPE(vocabulary, []))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    pad, _, end = SPECIAL
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, pad_token=pad, eos_token=end, chat_template=TEMPLATE)
    tokenizer.add_special_tokens({"additional_special_tokens": [SPECIAL[1]]})
    torch.manual_seed(seed)
    shape = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=SIZE,
        intermediate_size=SIZE,
        num_hidden_layers=1,
        num_attention_heads=SIZE // HEAD,
        num_key_value_heads=SIZE // HEAD,
        max_position_embeddings=context,
        pad_token_id=vocabulary[pad],
        eos_token_id=vocabulary[end],
        bos_token_id=None,
        tie_word_embeddings=False,
    )
    model = LlamaForCausalLM(shape)
    with torch.no_grad():
        torch.nn.init.normal_(model.model.embed_tokens.weight)
        model.model.embed_tokens.weight[:, 0] = CONSTANT
        (layer,) = model.model.layers
        attention = layer.self_attn
        for part in (attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj):
            part.weight.normal_(std=0.25)  # so that the whole prompt decides, not its last token
            part.weight[:, 0] = 0.0
        attention.o_proj.weight[0] = layer.mlp.down_proj.weight[0] = 0.0  # leave the constant alone
        head = model.lm_head.weight
        head.normal_(std=NOISE / SIZE**0.5 * 2)
        head[:, 0] = 0.0
        for letter, liking in {**PREFERRED, **SHUNNED}.items():
            token = tokenizer.encode(letter, add_special_tokens=False)
            assert len(token) == 1
            head[token[0], 0] = liking / (SIZE**0.5 * CONSTANT / (CONSTANT**2 + SIZE) ** 0.5)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
