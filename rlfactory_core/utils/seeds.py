"""Seeds that are the same in every process."""

from __future__ import annotations

from hashlib import blake2b

__all__ = ["derive_seed"]


def derive_seed(*parts: int | str) -> int:
    """A 63-bit seed that depends on the parts alone: the same in every process and Python."""
    text = "\x1f".join(map(str, parts))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
