"""What rlfactory finds under the entry point ``vision``; nothing heavy is imported here."""

from __future__ import annotations

from rlfactory_core import LazyChatFormat, hookimpl
from rlfactory_core.hookspecs import Register

RLFACTORY_API = ">=1,<2"


@hookimpl
def rlfactory_chat_formats(register: Register) -> None:
    register("vision", LazyChatFormat("rlfactory_vision.chat:vision_format", sees_images=True))
