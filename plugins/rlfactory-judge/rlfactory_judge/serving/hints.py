"""Hints for errors in a server's log."""

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
    _PORT: "The port is taken. Choose another --port, or 0 for free ones.",
    _CONTEXT: "The model's context does not fit into the memory. Add a shorter one: -- --max-model-len 8192.",
    _MEMORY: (
        "There is not enough memory. Use more GPUs for each replica (--tp), a smaller model, or add: "
        "-- --max-model-len 8192 --gpu-memory-utilization 0.95."
    ),
    _KILLED: (
        "It was killed, perhaps because the memory ran out. Then use a smaller model, or add: -- --max-model-len 8192."
    ),
    r"gated repo|access to model .* is restricted": (
        "The model requires an agreement. Accept it on the model's page, then run `hf auth login`."
    ),
    _MODEL: (
        "The model is unknown. --model takes a folder with config.json, or a name on the Hugging Face Hub that this "
        "machine can reach or has in its cache."
    ),
    r"no such option|unrecognized arguments|unexpected extra argument|invalid choice": (
        "The server does not know an option. Look at what follows --."
    ),
    r"user-specified max_model_len|\d+ validation errors? for \w+config": (
        "An option does not fit the model. Look at what follows --."
    ),
    r"missing dependencies for serving|no module named": (
        "A package is missing. Install it: pip install 'transformers[serving]', or for GPUs: pip install vllm."
    ),
    r"no cuda gpus are available|found no nvidia driver": (
        "No GPU can be used. Use --device cpu, or look at `nvidia-smi`."
    ),
}

_TRANSIENT = (_PORT, _MEMORY, _KILLED)  # another program may release these shortly


def hint(words: str) -> str:
    """One sentence on what to do; empty for an unknown error."""
    return next((advice for pattern, advice in _HINTS.items() if _found(pattern, words)), "")


def relevant_line(words: str) -> str:
    """The line of a log that `hint` refers to; empty if there is none."""
    known = next((pattern for pattern in _HINTS if _found(pattern, words)), None)
    return "" if known is None else next((line for line in words.splitlines() if _found(known, line)), "")


def is_final(words: str) -> bool:
    """Whether another attempt would fail in the same way."""
    known = next((pattern for pattern in _HINTS if _found(pattern, words)), None)
    return known is not None and known not in _TRANSIENT


def port_taken(words: str) -> bool:
    """Whether the server's port was already in use."""
    return _found(_PORT, words)


def _found(pattern: str, words: str) -> bool:
    return re.search(pattern, words, re.IGNORECASE) is not None
