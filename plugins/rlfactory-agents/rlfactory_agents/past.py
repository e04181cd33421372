"""What an attempt has been answered, by the ids that its agent got: a later request may name them instead of sending
the history again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from rlfactory_agents.exchange import ModelRequest, RequestError
from rlfactory_agents.keys import joined
from rlfactory_core.types import Message

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answered:
    """A request and its answer, as the agent got it."""

    request: ModelRequest
    answer: Message

    @property
    def messages(self) -> tuple[Message, ...]:
        """The whole conversation, without the instructions that each request sends anew."""
        history = self.request.messages[self.request.instructions :]
        if not self.request.opening:
            return (*history, self.answer)
        return (*history[:-1], joined(history[-1], self.answer))


class Past:
    """One table for ``previous_response_id``, ``item_reference`` and the ``thread`` of Anthropic's messages."""

    def __init__(self) -> None:
        self._answers: dict[str, Answered] = {}
        self._items: dict[str, Mapping[str, Any]] = {}

    def keep(self, given: Mapping[str, Mapping[str, Any]], request: ModelRequest, answer: Message) -> None:
        """Remember an answer.

        Args:
            given: what the agent got, by the ids in it: the answer itself, and its items.
        """
        self._items.update(given)
        self._answers.update(dict.fromkeys(given, Answered(request, answer)))

    def answered(self, name: Any, field: str, code: str) -> Answered:
        """The answer with this id."""
        return _found(self._answers, name, field, code)

    def item(self, name: Any) -> Mapping[str, Any]:
        """The item of an answer with this id."""
        return _found(self._items, name, "item_reference", "item_not_found")


def _found(known: Mapping[str, T], name: Any, field: str, code: str) -> T:
    """What is known under this id; else a `RequestError`."""
    if isinstance(name, str) and name in known:
        return known[name]
    raise RequestError(
        f"{field} names {name!r:.80}, which is no answer of this attempt. Name one of its answers, or send the whole "
        "conversation.",
        404,
        code,
    )
