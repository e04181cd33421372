"""The cache of replies: the key of a question, and the stored part of a reply."""

from __future__ import annotations

import json

from rlfactory_core.cache import cache_root, digest
from rlfactory_core.clients.base import Completion
from rlfactory_core.tools import AnswerCache, DiskCache, MemoryCache
from rlfactory_core.types import Message
from rlfactory_judge.contract import Question
from rlfactory_judge.options import JudgeOptions

_FORMAT = "2"  # of keys and contents


def reply_key(model: str, question: Question, options: JudgeOptions, temperature: float, sample: int) -> str:
    """The key of everything that determines the judge's reply; ``model`` is `JudgeService.identity`."""
    return digest(
        [
            _FORMAT,
            model,
            question.system,
            question.user,
            type(question.form).__qualname__,
            json.dumps(question.form.schema, sort_keys=True),
            json.dumps([options.output, temperature, options.max_tokens, options.seed, sample]),
        ]
    )


class ReplyCache:
    """A cache of replies: ``memory`` for this object's lifetime, ``disk`` for all runs of the machine."""

    def __init__(self, place: str, tag: str) -> None:
        self._place, self._tag = place, tag
        self._cache: AnswerCache | None = None

    def open(self) -> None:
        if self._place == "memory" and self._cache is None:
            self._cache = MemoryCache()
        elif self._place == "disk":
            self._cache = DiskCache(cache_root() / "judge")

    async def get(self, key: str) -> Message | None:
        content = None if self._cache is None else await self._cache.get(key)
        if content is None:
            return None
        try:
            text, reasoning = json.loads(content)
            return Message("assistant", str(text), reasoning=str(reasoning))
        except (ValueError, TypeError):
            return None

    def put(self, key: str, completion: Completion) -> None:
        """Store a reply that could be parsed."""
        if self._cache is not None:
            message = completion.message
            self._cache.put(key, self._tag, json.dumps([message.content, message.reasoning]))

    async def close(self) -> None:
        cache = self._cache
        if self._place == "disk":
            self._cache = None  # its thread has ended; a second close would wait for it
        if cache is not None:
            await cache.close()
