"""Factories for a plugin's hooks that import what they stand for when it is first needed, so that listing and loading
a plugin cost next to nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True, slots=True)
class Lazy:
    """A factory that imports the class or function it stands for when it is called."""

    target: str  # module:attribute

    def load(self) -> Any:
        """The class or function itself."""
        module, _, attribute = self.target.partition(":")
        return getattr(import_module(module), attribute)

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.load()(*args, **options)


@dataclass(frozen=True, slots=True)
class LazyReward(Lazy):
    """Also says how its options are saved, so that they mean the same in another folder."""

    settles: str  # module:function
    options: str = ""  # module:Section that describes them; empty: the target's arguments do

    def settle(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        settled: Mapping[str, Any] = Lazy(self.settles).load()(options)
        return settled


class LazyChatFormat(Lazy):
    """Also asks the class whether it fits a model's chat template."""

    __slots__ = ()

    def matches(self, chat_template: str) -> bool:
        return bool(self.load().matches(chat_template))


@dataclass(frozen=True, slots=True)
class LazyEngine(Lazy):
    """Also says how a task's defaults fit the engine."""

    adapts: str  # module:function

    def adapt(self, defaults: Mapping[str, Any]) -> Mapping[str, Any]:
        adapted: Mapping[str, Any] = Lazy(self.adapts).load()(defaults)
        return adapted
