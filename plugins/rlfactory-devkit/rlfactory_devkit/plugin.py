"""What rlfactory finds under the entry point ``devkit``; nothing heavy is imported here."""

from __future__ import annotations

from rlfactory_core import Lazy, hookimpl
from rlfactory_core.hookspecs import Register

RLFACTORY_API = ">=1,<2"
COMMANDS = "rlfactory_devkit.commands"


@hookimpl
def rlfactory_commands(register: Register) -> None:
    register("new", Lazy(f"{COMMANDS}.new:new").load)
    register("play", Lazy(f"{COMMANDS}.play:play").load)
    register("samples", Lazy(f"{COMMANDS}.samples:samples").load)
    register("plugins check", Lazy(f"{COMMANDS}.check:check").load)
    register("plugins redteam", Lazy(f"{COMMANDS}.redteam:redteam").load)
