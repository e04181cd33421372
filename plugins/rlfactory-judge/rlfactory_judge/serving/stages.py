"""How far a server has come with its start, read from its log."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

from rlfactory_judge.serving.process import ServerProcess

_POLL_S = 0.5
_LINES = 400
_STAGES = (  # as vLLM and transformers say it, in the order in which it happens
    (r"downloading|fetching \d+ files", "downloads the model"),
    (r"starting to load model|loading checkpoint shards|loading safetensors|\] loading \S+@", "loads the weights"),
    (r"loading weights took|model loading took", "has loaded the weights"),
    (r"dynamo bytecode transform|torch\.compile takes", "compiles"),
    (r"kv cache size", "has taken memory for the cache"),
    (r"capturing cuda graph", "captures CUDA graphs"),
)


async def tell_stages(process: ServerProcess, say: Callable[[str], None]) -> None:
    """Say each stage once, the latest only where several have passed; until this is cancelled."""
    reached = 0
    while process.exit_code is None:
        words = process.last_lines(_LINES)
        found = [number for number, (pattern, _) in enumerate(_STAGES, 1) if re.search(pattern, words, re.IGNORECASE)]
        if found and found[-1] > reached:
            reached = found[-1]
            say(_STAGES[reached - 1][1])
        await asyncio.sleep(_POLL_S)
