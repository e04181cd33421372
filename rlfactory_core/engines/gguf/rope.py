"""Llama 3's scaled rotary embeddings, which GGUF has as a tensor of factors and a folder as four numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

LLAMA3: Mapping[str, Any] = {  # of all models of Llama 3.1 to 3.3, but for the factor
    "rope_type": "llama3",
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
TENSOR = "rope_freqs.weight"


def llama3_factors(rope: Mapping[str, Any], width: int) -> list[float]:
    """By what each frequency is divided, as llama.cpp's conversion computes it.

    Args:
        rope: ``rope_parameters`` of a configuration.
        width: of a head.
    """
    factor, low, high = (float(rope[key]) for key in ("factor", "low_freq_factor", "high_freq_factor"))
    begun = rope["original_max_position_embeddings"]
    factors = []
    for at in range(0, width, 2):
        wave = 2 * math.pi * rope["rope_theta"] ** (at / width)
        smooth = (begun / wave - low) / (high - low)
        between = 1 / ((1 - smooth) / factor + smooth)
        factors.append(1.0 if wave < begun / high else factor if wave > begun / low else between)
    return factors


def llama3_parameters(factors: Sequence[float], theta: float) -> dict[str, Any] | None:
    """The inverse; None if the factors are not those of a published Llama 3."""
    rope = {**LLAMA3, "rope_theta": theta, "factor": round(max(factors), 4)}
    expected = llama3_factors(rope, 2 * len(factors))
    close = (math.isclose(ours, theirs, rel_tol=1e-4) for ours, theirs in zip(expected, factors, strict=True))
    return rope if all(close) else None
