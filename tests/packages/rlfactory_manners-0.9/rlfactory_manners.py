"""Another distribution that registers the scorer ``politeness``, and one of its own."""

from __future__ import annotations

from typing import Any

from rlfactory_core.hookspecs import hookimpl


@hookimpl
def rlfactory_reward_scorers(register: Any) -> None:
    register("politeness", dict)
    register("punctuality", dict)
