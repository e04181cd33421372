"""Models that rollouts ask: an engine's sampler with a chat format, and one whose answers can be repeated."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from rlfactory_core.images import NAME
from rlfactory_core.plugins.attributes import optional_attributes
from rlfactory_core.protocols import ChatFormat, ChatFormatTraits, Model, Request, Sampled, Sampler, Vision
from rlfactory_core.types import Message

_log = logging.getLogger(__name__)


class TokenModel:
    """A `protocols.Model` in tokens, which are never decoded and encoded again: a chat format, and a sampler.

    Args:
        sampler: gets the same list of ids at each turn of a session, longer each time; it must not keep or change it.
    """

    def __init__(self, chat: ChatFormat, sampler: Sampler) -> None:
        self.chat = chat
        self._sampler, self.release = sampler, sampler.release
        self._vision = vision_of(chat)

    async def answer(self, request: Request) -> Sampled:
        """See `protocols.Model`.

        Raises:
            ValueError: the sampler returned different numbers of ids and log-probs.
            Exception: whatever the sampler raises.
        """
        images = self._images(request.messages)
        params = replace(request.params, images=images) if images else request.params
        sampled = await self._sampler.sample(request.ids, params, session=request.session)
        if len(sampled.token_ids) != len(sampled.logprobs):
            raise ValueError(
                f"the sampler gave {len(sampled.token_ids)} ids and {len(sampled.logprobs)} log-probs; "
                "each sampled id needs its own."
            )
        return Sampled(
            self.chat.parse(sampled.token_ids, request.tools),
            sampled.finish,
            len(request.ids),
            len(sampled.token_ids),
            sampled.token_ids,
            sampled.logprobs,
            sampled.version,
            sampled.versions,
            images,
        )

    def _images(self, messages: Sequence[Message]) -> tuple[str, ...]:
        """The images in the messages, if the model sees them."""
        if self._vision is not None:
            return self._vision.images_in(messages)
        if any(NAME.search(message.content) for message in messages):
            _warn_of_unseen_images(self.chat.name)
        return ()


class RepeatingModel:
    """Samples each turn once: after `repeat`, requests with the same ids get the same answers, in the same order.

    A retry is then the same attempt in a fresh environment. Resampling would bias the data: an attempt that called the
    broken tool would be redrawn until it does not call it.
    """

    def __init__(self, model: Model) -> None:
        self.chat, self.release = model.chat, model.release
        self._model = model
        self._answers: dict[tuple[int, ...], list[Sampled | None]] = {}
        self._repeated: dict[tuple[int, ...], int] = {}  # how many of the answers the current attempt has had

    def repeat(self) -> None:
        """The attempt starts again."""
        self._repeated.clear()

    async def answer(self, request: Request) -> Sampled | None:
        """See `protocols.Model`."""
        key = tuple(request.ids)
        number = self._repeated.get(key, 0)
        known = self._answers.setdefault(key, [])
        if number == len(known):
            known.append(await self._model.answer(request))
        self._repeated[key] = number + 1
        return known[number]


def vision_of(chat: ChatFormat) -> Vision | None:
    """How the model of a chat format sees images; None: it sees none."""
    return optional_attributes(chat, ChatFormatTraits, f"The chat format '{chat.name}'").vision


@cache
def _warn_of_unseen_images(chat: str) -> None:
    _log.warning("The chat format %s has no images: the model reads the name of an image in its place.", chat)
