"""What a server's last words mean, and what to do about them."""

from __future__ import annotations

import re
from collections.abc import Mapping

_PORT = r"address already in use|errno 98\b|port \d+ is already in use"
_MEMORY = r"out of memory|no available memory for the cache|free memory on device|cannot allocate memory|memoryerror"
_KILLED = r"signal 9\b"
_CONTEXT = r"larger than the maximum number of tokens that can be stored in KV cache|kv cache is needed"
_MODEL = (
    r"not a valid model identifier|repository not found|can't load the configuration|does not appear to have a file"
    r"|cannot find an appropriate cached snapshot|couldn't connect to|couldn't find them in the cached files"
    r"|invalid repository id|repo id must|is not a local folder"
)
_HINTS: Mapping[str, str] = {
    _PORT: "The port is taken: choose another --port, or 0 for free ones.",
    _CONTEXT: "The model's context does not fit into the memory: give a shorter one, after --: --max-model-len 8192.",
    _MEMORY: (
        "The memory does not suffice: more GPUs a replica (--tp), a smaller model, or after --: "
        "--max-model-len 8192 --gpu-memory-utilization 0.95."
    ),
    _KILLED: (
        "Somebody killed it, or the system did for want of memory: then give a smaller model, or after --: "
        "--max-model-len 8192."
    ),
    r"gated repo|access to model .* is restricted": (
        "The model asks for an agreement: accept it on its page, then `hf auth login`."
    ),
    _MODEL: (
        "The model is unknown: --model takes a folder with config.json, or a name on the Hugging Face Hub that this "
        "machine can reach or has in its cache."
    ),
    r"no such option|unrecognized arguments|unexpected extra argument|invalid choice": (
        "The server does not know an option: look at what follows --."
    ),
    r"user-specified max_model_len|\d+ validation errors? for \w+config": (
        "An option does not fit the model: look at what follows --."
    ),
    r"missing dependencies for serving|no module named": (
        "A package is missing: pip install 'transformers[serving]', or for GPUs: pip install vllm."
    ),
    r"no cuda gpus are available|found no nvidia driver": (
        "No GPU can be used: give --device cpu, or look at `nvidia-smi`."
    ),
}

_TRANSIENT = (_PORT, _MEMORY, _KILLED)  # what another program may free in a moment


def hint(words: str) -> str:
    """One sentence on what to do; empty where the words say nothing known."""
    return next((advice for pattern, advice in _HINTS.items() if _found(pattern, words)), "")


def telling_line(words: str) -> str:
    """The line of a log that `hint` goes by; empty where there is none."""
    known = next((pattern for pattern in _HINTS if _found(pattern, words)), None)
    return "" if known is None else next((line for line in words.splitlines() if _found(known, line)), "")


def is_final(words: str) -> bool:
    """Whether another attempt would end in the same way."""
    known = next((pattern for pattern in _HINTS if _found(pattern, words)), None)
    return known is not None and known not in _TRANSIENT


def port_taken(words: str) -> bool:
    """Whether the server could not listen because another one does."""
    return _found(_PORT, words)


def _found(pattern: str, words: str) -> bool:
    return re.search(pattern, words, re.IGNORECASE) is not None
