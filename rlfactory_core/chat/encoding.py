"""Encodes rendered chat templates as token ids, so that no content can write a special token.

A content goes through the template like any other text, which may trim it, write it as JSON or leave it out. Before,
a mark is inserted after the first character of every added token that the content spells. The rendered text is then
split at the added tokens, which can only be the template's own. The marks are removed, and each part between two added
tokens is tokenised as one piece. The ids are therefore those of the whole text, merges across the edges of a content
included, while a ``<|im_end|>`` within a content stays plain text.

transformers 5.23 has ``sanitize_control_tokens`` for whole chats, with the same idea. It tokenises marked tokens apart
from the text around them, and does not cover text that follows a sampled turn.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from tokenizers.pre_tokenizers import PreTokenizer

_PRIVATE = (range(0xE000, 0xF900), range(0xF0000, 0xFFFFE))  # code points that Unicode leaves to applications


class TextEncoder:
    """Guards contents and encodes rendered texts.

    Added tokens of a single character or of white space are treated as text.

    Args:
        backend: the Rust tokenizer of a fast tokenizer.
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
        # The same model without the added tokens, so that it encodes plain text only.
        self._first = _without_added_tokens(backend, backend.pre_tokenizer)
        self._later = _without_added_tokens(backend, _unprefixed(backend))

    def mark(self, contents: Any) -> str:
        """A character that is nowhere in ``contents`` (JSON-like data), neither as itself nor as a JSON escape."""
        text = json.dumps(contents, ensure_ascii=False, default=dict)
        marks = map(chr, chain.from_iterable(_PRIVATE))
        return next(mark for mark in marks if mark not in text and json.dumps(mark)[1:-1] not in text)

    def guard(self, content: Any, mark: str) -> Any:
        """The content (JSON-like data) with a mark within everything that spells an added token, also in keys."""
        if isinstance(content, str):
            return self._control.sub(lambda match: match[0][0] + mark + match[0][1:], content)
        if isinstance(content, Mapping):
            return {self.guard(key, mark): self.guard(value, mark) for key, value in content.items()}
        if isinstance(content, (list, tuple)):
            return [self.guard(item, mark) for item in content]
        return content

    def unmark(self, rendered: str, mark: str) -> str:
        """The rendered text without the marks, which a template may have written as JSON escapes."""
        return rendered.replace(mark, "").replace(json.dumps(mark)[1:-1], "")

    def ids(self, rendered: str, mark: str, *, start: bool) -> tuple[int, ...]:
        """The ids of a rendered text; every unmarked added token in it becomes that token.

        Args:
            start: whether the text begins the sequence, where some tokenizers put a space before the first word.
        """
        ids: list[int] = []
        for position, piece in enumerate(self._cut.split(rendered)):
            token = self._added.get(piece, self._added.get(piece.strip()))  # it may include the white space around it
            if token is not None:
                ids.append(token)
            elif piece:
                plain = self._first if start and position == 0 else self._later
                ids += plain.encode(self.unmark(piece, mark), add_special_tokens=False).ids
        return tuple(ids)

    def first_added(self, rendered: str) -> str | None:
        """The first control token in a rendered text."""
        match = self._control.search(rendered)
        return match[0] if match else None


def _any_of(names: Mapping[str, str]) -> str:
    """A pattern that matches the longest of the names, followed by that name's pattern.

    It branches by characters, because trying up to a thousand added tokens one by one would be slow.
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


def _without_added_tokens(backend: Tokenizer, pre_tokenizer: PreTokenizer | None) -> Tokenizer:
    plain = type(backend)(backend.model)
    if backend.normalizer is not None:
        plain.normalizer = backend.normalizer
    if pre_tokenizer is not None:
        plain.pre_tokenizer = pre_tokenizer
    return plain


def _unprefixed(backend: Tokenizer) -> PreTokenizer | None:
    """The pre-tokenizer for text in the middle of a sequence, without SentencePiece's space before the first word."""
    if backend.pre_tokenizer is None:
        return None
    holder = type(backend)(type(backend.model)())  # a pre-tokenizer can be serialised only within a tokenizer
    holder.pre_tokenizer = backend.pre_tokenizer
    changed = holder.to_str().replace('"prepend_scheme":"first"', '"prepend_scheme":"never"')
    unprefixed: PreTokenizer = type(backend).from_str(changed).pre_tokenizer
    return unprefixed
