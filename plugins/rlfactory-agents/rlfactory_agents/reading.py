"""What a request of an agent's asks beyond a turn of a rollout: text that the answer continues, texts that end it."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace

from rlfactory_agents.exchange import ModelRequest
from rlfactory_core.errors import ChatFormatError
from rlfactory_core.plugins import optional_attributes
from rlfactory_core.protocols import ChatFormat, ChatFormatTraits, Sampled
from rlfactory_core.types import Message

_CONTENT = "probe"  # stands for an answer's text, in which a mark of the template could be
_OPEN_THINKING = re.compile(r"<(think[^<>]*)>\s*$")  # at the end of a prompt
_UNTHOUGHT = re.compile(r"^.*?(</think>|\[/THINK\])", re.DOTALL)


def opening_ids(chat: ChatFormat | None, opening: str) -> tuple[int, ...]:
    """The ids of a text with which the answer begins, after those of the prompt.

    Raises:
        ChatFormatError: a server's model does not continue a text.
    """
    if not opening:
        return ()
    if chat is None:
        raise ChatFormatError(
            f"The last message is the assistant's, {opening!r:.80}. A model behind a server does not continue it: end "
            "with a message of the user or of a tool."
        )
    write = optional_attributes(chat, ChatFormatTraits, f"The chat format '{chat.name}'").written
    written = write(Message("assistant", _CONTENT)) if write else ""
    head = written[: max(written.rfind(_CONTENT), 0)]  # such as the end of the thinking, or a channel
    thinking = _OPEN_THINKING.search(chat.decode(chat.observation_ids((Message("user", "?"),))))
    head = head or (f"</{thinking[1]}>\n\n" if thinking else "")
    return (*chat.encode(head), *chat.encode(opening))


def unsampled_end(chat: ChatFormat, sampled: Sampled) -> tuple[int, ...]:
    """What ends the turn in the next context, if a stop text ended the sampling."""
    has_end = sampled.finish != "stop" or not sampled.token_ids or sampled.token_ids[-1] in chat.stop_token_ids
    return () if has_end else chat.stop_token_ids[:1]


def read_answer(chat: ChatFormat, sampled: Sampled, request: ModelRequest) -> Sampled:
    """The answer as the request asks for it: ended by its stop texts, and without its opening.

    Without tools in the request no call is read from it: the text stays as it is.
    """
    answer = _until_stop(chat, sampled, request.stop)
    if answer is sampled and not request.opening and (request.tools or not sampled.message.tool_calls):
        return sampled
    ids = [*opening_ids(chat, request.opening), *answer.token_ids]
    message = chat.parse(ids, request.tools)
    if message.tool_calls and not request.tools:
        while ids and ids[-1] in chat.stop_token_ids:
            ids.pop()
        text = chat.decode(ids)
        content = _UNTHOUGHT.sub("", text, count=1) if message.reasoning else text
        message = replace(message, content=content.strip(), tool_calls=())
    return replace(answer, message=replace(message, content=_after(request.opening, message.content)))


def _until_stop(chat: ChatFormat, sampled: Sampled, stop: Sequence[str]) -> Sampled:
    """The turn up to the token that completes one of the stop texts.

    Samplers know no texts, and sample a turn to its own end. What follows the text is dropped, as if it had not been
    sampled: the distribution of what is before it is the same. A stop token right after the text stays.
    """
    ids = sampled.token_ids

    def has_stop(end: int) -> bool:
        begun = chat.decode(ids[:end])
        return any(text in begun for text in stop if text)

    if not stop or not has_stop(len(ids)):
        return sampled
    end = bisect_left(range(len(ids)), x=True, key=has_stop)
    if end < len(ids) and ids[end] in chat.stop_token_ids:
        end += 1
    cut = replace(sampled, token_ids=ids[:end], logprobs=sampled.logprobs[:end], versions=sampled.versions[:end])
    return replace(cut, finish="stop", sampled_tokens=end)


def _after(opening: str, content: str) -> str:
    """A text without its beginning; parsers strip white space at its ends."""
    for begun in (opening, opening.lstrip(), opening.strip()):
        if content.startswith(begun):
            return content[len(begun) :]
    return content
