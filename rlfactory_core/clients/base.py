"""The base class of models that answer in messages, whatever serves them."""

from __future__ import annotations

from rlfactory_core.protocols import Request, Sampled

__all__ = ["ServerModel"]


class ServerModel:
    """A `protocols.Model` without ids: its turns can be read and scored, but not trained on. Subclasses answer."""

    chat: None = None

    async def answer(self, request: Request) -> Sampled | None:
        """See `protocols.Model`."""
        raise NotImplementedError

    async def release(self, session: str) -> None:
        """Nothing is kept of a session."""
