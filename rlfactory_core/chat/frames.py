"""Filling contents into what a chat template renders, as token ids, without letting content write special tokens.

A template is rendered once with slots in place of the contents. Its text is cut at the tokenizer's added tokens;
what lies between two of them is tokenised as one piece, contents filled in. So the ids are those of the whole text,
merges across the edges of a content included, while a ``<|im_end|>`` within a content stays plain text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_SLOT = re.compile(r"@@rlfactory-slot-(\d+)@@")


def slot(index: int) -> str:
    """The stand-in for the content number ``index``."""
    return f"@@rlfactory-slot-{index}@@"


@dataclass(frozen=True, slots=True)
class Hole:
    """A piece between two added tokens: ``texts[0] + contents[slots[0]] + texts[1] + …``."""

    texts: tuple[str, ...]  # one more than slots
    slots: tuple[int, ...]


Frame = tuple[tuple[int, ...] | Hole, ...]
"""A rendered text: fixed ids, and holes to fill."""


class FrameEncoder:
    """Cuts rendered texts into frames and fills them; ``backend`` is a fast tokenizer's Rust tokenizer."""

    def __init__(self, backend: Tokenizer) -> None:
        # The same model without the added tokens: what it encodes can only be plain text.
        self._plain = type(backend)(backend.model)
        if backend.normalizer is not None:
            self._plain.normalizer = backend.normalizer
        if backend.pre_tokenizer is not None:
            self._plain.pre_tokenizer = backend.pre_tokenizer
        self._added = {token.content: index for index, token in backend.get_added_tokens_decoder().items()}
        names = sorted(self._added, key=len, reverse=True)
        self._cut = re.compile("(" + "|".join(map(re.escape, names)) + ")") if names else re.compile("(?!)")

    def frame(self, rendered: str) -> Frame:
        """Cut a rendered text; every added token in it is meant as one."""
        parts: list[tuple[int, ...] | Hole] = []
        fixed: list[int] = []
        for piece in self._cut.split(rendered):
            if piece in self._added:
                fixed.append(self._added[piece])
                continue
            pieces = _SLOT.split(piece)
            if len(pieces) == 1:
                fixed += self.plain_ids(piece)
                continue
            if fixed:
                parts.append(tuple(fixed))
                fixed = []
            parts.append(Hole(tuple(pieces[::2]), tuple(map(int, pieces[1::2]))))
        if fixed:
            parts.append(tuple(fixed))
        return tuple(parts)

    def fill(self, frame: Frame, contents: Sequence[str]) -> tuple[int, ...]:
        """The ids of the frame with its contents, which cannot produce an added token."""
        ids: list[int] = []
        for part in frame:
            if not isinstance(part, Hole):
                ids += part
                continue
            text = part.texts[0]
            for index, following in zip(part.slots, part.texts[1:], strict=True):
                text += contents[index] + following
            ids += self.plain_ids(text)
        return tuple(ids)

    def plain_ids(self, text: str) -> list[int]:
        """``text`` as plain text, whatever tokens it seems to spell."""
        ids: list[int] = self._plain.encode(text, add_special_tokens=False).ids
        return ids
