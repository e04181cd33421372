"""What an attempt has been answered, by the ids that its agent got: a later request may name them instead of sending
the history again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rlfactory_agents.exchange import ModelRequest, RequestError
from rlfactory_agents.keys import joined
from rlfactory_core.types import Message


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
        self._latest: tuple[Message, ...] = ()

    def keep(self, given: Mapping[str, Mapping[str, Any]], request: ModelRequest, answer: Message) -> None:
        """Remember an answer.

        Args:
            given: what the agent got, by the ids in it: the answer itself, and its items.
        """
        if not given:
            return
        # Most agents send the whole history each time: what has come before is held once.
        known = (old if old == new else new for old, new in zip(self._latest, request.messages, strict=False))
        self._latest = (*known, *request.messages[len(self._latest) :])
        request = replace(request, messages=self._latest)
        self._items.update(given)
        self._answers.update(dict.fromkeys(given, Answered(request, answer)))

    def answered(self, name: Any, field: str, code: str) -> Answered:
        """The answer with this id.

        Raises:
            RequestError: there is none.
        """
        found = self._answers.get(name) if isinstance(name, str) else None
        if found is None:
            raise _unknown(name, field, code)
        return found

    def item(self, name: Any) -> Mapping[str, Any]:
        """The item of an answer with this id.

        Raises:
            RequestError: there is none.
        """
        found = self._items.get(name) if isinstance(name, str) else None
        if found is None:
            raise _unknown(name, "item_reference", "item_not_found")
        return found


def _unknown(name: Any, field: str, code: str) -> RequestError:
    return RequestError(
        f"{field} names {name!r:.80}, which is no answer of this attempt. Name one of its answers, or send the whole "
        "conversation.",
        404,
        code,
    )
