"""A question as a request's messages, and what a completion is to the question: its answer and its price."""

from __future__ import annotations

from collections.abc import Sequence

from rlfactory_core.clients.base import Completion
from rlfactory_core.types import Message
from rlfactory_judge.contract import Question, UnreadableError

_CHARS_PER_TOKEN = 4  # where a server counts nothing


def messages_of(question: Question) -> tuple[Message, ...]:
    system = (Message("system", question.system),) if question.system else ()
    return (*system, Message("user", question.user))


def read_completion(question: Question, completion: Completion, max_tokens: int) -> tuple[float, ...]:
    """What the form finds in a whole completion.

    Raises:
        UnreadableError: nothing, or the completion is not whole.
    """
    if completion.finish == "length":  # half a number is another number
        raise UnreadableError(
            f"The judge's reply was cut off at max_tokens={max_tokens}. Give it more, or a rubric that asks for less."
        )
    return question.form.read(completion.message.content)


def price(messages: Sequence[Message], completion: Completion) -> int:
    """Tokens, estimated where the server does not count."""
    counted = completion.prompt_tokens + completion.sampled_tokens
    if counted:
        return counted
    texts = [message.content for message in messages] + [completion.message.content, completion.message.reasoning]
    return sum(map(len, texts)) // _CHARS_PER_TOKEN + 1
