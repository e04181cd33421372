"""The tokens of a trajectory one by one, with their log-probs, where the run's tokenizer can be read; their colours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from rlfactory_core.reporting import RunFolder, StoredTrajectory

_SHADES = ((-0.1, 0), (-0.7, 1), (-1.6, 2), (-3.0, 3))  # log-prob from which on a token has this shade; else 4


def advantage_colour(advantage: float) -> str:
    """The class of all sampled tokens of a trajectory: ``up1`` to ``up3``, ``down1`` to ``down3``; empty for 0."""
    if not advantage:
        return ""
    return f"{'up' if advantage > 0 else 'down'}{1 + (abs(advantage) >= 0.5) + (abs(advantage) >= 1.0)}"


@dataclass(frozen=True, slots=True)
class Token:
    text: str
    logprob: float | None = None  # None: masked from the loss

    @property
    def shade(self) -> int:
        """0: nearly certain, to 4: surprising."""
        return next((shade for limit, shade in _SHADES if (self.logprob or 0.0) >= limit), 4)


@dataclass(frozen=True, slots=True)
class TurnTokens:
    context: str
    sampled: Sequence[Token]  # one token with the whole text if the tokenizer is missing


@dataclass(frozen=True, slots=True)
class TokenTexts:
    """Decodes single ids."""

    tokenizer: Any = None  # of the package `tokenizers`

    @classmethod
    def of(cls, folder: RunFolder) -> TokenTexts:
        """With the tokenizer of the newest checkpoint, if there is one and the package is installed."""
        path = folder.checkpoints / "latest" / "tokenizer.json"
        return cls(_load(path, path.stat().st_mtime_ns) if path.is_file() else None)

    def turns(self, stored: StoredTrajectory) -> list[TurnTokens]:
        pairs = zip(stored.trajectory.turns, stored.texts, strict=True)
        return [TurnTokens(text.context, self._sampled(turn, text.sampled)) for turn, text in pairs]

    def _sampled(self, turn: Any, text: str) -> list[Token]:
        if self.tokenizer is None or len(turn.logprobs) != len(turn.sampled_ids):
            mean = sum(turn.logprobs) / len(turn.logprobs) if turn.logprobs else 0.0
            return [Token(text, mean)] if text else []
        decode = self.tokenizer.decode
        texts = (decode([token], skip_special_tokens=False) for token in turn.sampled_ids)
        return [Token(text, logprob) for text, logprob in zip(texts, turn.logprobs, strict=True)]


@lru_cache(maxsize=4)
def _load(path: Path, _changed: int) -> Any:
    try:
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(path))
    except Exception:  # noqa: BLE001 - not installed, or of a newer format: then the turn is one text
        return None
