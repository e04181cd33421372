"""Rendered chat templates as token ids, in which a content cannot write a special token.

A content passes through the template like any other text, so that whatever the template does to it (trimming, JSON,
leaving it out) is done to it; but where it spells one of the tokenizer's added tokens, a mark is put behind the first
character. The rendered text is then cut at the added tokens, which can only be the template's own; the marks are taken
out, and what lies between two cuts is tokenised as one piece. So the ids are those of the whole text, merges across the
edges of a content included, while a ``<|im_end|>`` within a content stays plain text.

transformers 5.23 has ``sanitize_control_tokens`` for whole chats, with the same idea; it tokenises marked tokens apart
from the text around them, and does nothing for the text that follows a sampled turn.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from tokenizers.pre_tokenizers import PreTokenizer

_PRIVATE = (range(0xE000, 0xF900), range(0xF0000, 0xFFFFE))  # code points that Unicode leaves to applications
_CACHED = 4096  # characters: what is rendered often (headers, system prompts, tools) is mostly shorter


class TextEncoder:
    """Guards contents and encodes rendered texts; ``backend`` is a fast tokenizer's Rust tokenizer.

    Added tokens of one character or of white space alone are text to it, whoever writes them.
    """

    def __init__(self, backend: Tokenizer) -> None:
        added = backend.get_added_tokens_decoder()
        self._added = {token.content: index for index, token in added.items()}
        behind = {token.content: r"\s*" * token.rstrip for token in added.values()}
        takes_before = {token.content: behind[token.content] for token in added.values() if token.lstrip}
        before = rf"(?<!\s)\s*{_any_of(takes_before)}|" if takes_before else ""
        self._cut = re.compile(f"({before}{_any_of(behind)})")
        controls = [name for name in self._added if len(name) > 1 and not name.isspace()]
        self._control = re.compile(_any_of(dict.fromkeys(controls, "")))
        # The same model without the added tokens: what these encode can only be plain text.
        self._first = _without_added_tokens(backend, backend.pre_tokenizer)
        self._later = _without_added_tokens(backend, _unprefixed(backend))
        self._short_ids = lru_cache(maxsize=512)(self._piece_ids)

    def mark(self, contents: Any) -> str:
        """A character that is nowhere in ``contents``, JSON-like data: not as itself, and not as a JSON escape."""
        text = json.dumps(contents, ensure_ascii=False, default=dict)
        marks = map(chr, chain.from_iterable(_PRIVATE))
        return next(mark for mark in marks if mark not in text and _escaped(mark) not in text)

    def guard(self, content: Any, mark: str) -> Any:
        """JSON-like data, with a mark within everything that spells an added token, in keys too."""
        if isinstance(content, str):
            return self._control.sub(lambda match: match[0][0] + mark + match[0][1:], content)
        if isinstance(content, Mapping):
            return {self.guard(key, mark): self.guard(value, mark) for key, value in content.items()}
        if isinstance(content, (list, tuple)):
            return [self.guard(item, mark) for item in content]
        return content

    def unmark(self, rendered: str, mark: str) -> str:
        """The rendered text for people: what stood in the contents is again what it was."""
        return rendered.replace(mark, "").replace(_escaped(mark), "")

    def ids(self, rendered: str, mark: str, *, start: bool) -> tuple[int, ...]:
        """The ids of a rendered text; every unmarked added token in it is meant as one.

        Args:
            start: the text begins the sequence; some tokenizers put a space before the first word then.
        """
        ids: list[int] = []
        for position, piece in enumerate(self._cut.split(rendered)):
            token = self._added.get(piece, self._added.get(piece.strip()))  # it may take the white space around it
            if token is not None:
                ids.append(token)
            elif piece:
                text = self.unmark(piece, mark)
                encode = self._short_ids if len(text) <= _CACHED else self._piece_ids
                ids += encode(text, start and position == 0)
        return tuple(ids)

    def first_added(self, rendered: str) -> str | None:
        """The first control token in a rendered text."""
        match = self._control.search(rendered)
        return match[0] if match else None

    def _piece_ids(self, text: str, first: bool) -> Sequence[int]:
        ids: list[int] = (self._first if first else self._later).encode(text, add_special_tokens=False).ids
        return ids


def _any_of(names: Mapping[str, str]) -> str:
    """A pattern for the longest of the names that stands at a place, each followed by its pattern.

    It branches by characters: tokenizers have up to a thousand added tokens, too many to be tried one by one.
    """
    tree: dict[str, Any] = {}
    for name, behind in names.items():
        node = tree
        for character in name:
            node = node.setdefault(character, {})
        node[""] = behind
    return _pattern(tree) if tree else "(?!)"


def _pattern(node: dict[str, Any]) -> str:
    branches = [re.escape(character) + _pattern(below) for character, below in node.items() if character]
    if "" in node:
        branches.append(node[""])
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"


def _escaped(mark: str) -> str:
    return json.dumps(mark)[1:-1]


def _without_added_tokens(backend: Tokenizer, pre_tokenizer: PreTokenizer | None) -> Tokenizer:
    plain = type(backend)(backend.model)
    if backend.normalizer is not None:
        plain.normalizer = backend.normalizer
    if pre_tokenizer is not None:
        plain.pre_tokenizer = pre_tokenizer
    return plain


def _unprefixed(backend: Tokenizer) -> PreTokenizer | None:
    """Its pre-tokenizer for text that does not begin the sequence: no SentencePiece space before a first word."""
    if backend.pre_tokenizer is None:
        return None
    holder = type(backend)(type(backend.model)())  # pre-tokenizers are described within a tokenizer only
    holder.pre_tokenizer = backend.pre_tokenizer
    described = holder.to_str().replace('"prepend_scheme":"first"', '"prepend_scheme":"never"')
    elsewhere: PreTokenizer = type(backend).from_str(described).pre_tokenizer
    return elsewhere
