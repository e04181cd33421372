"""Factories for a plugin's hooks that import their target when it is first needed, so that loading a plugin is fast."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True, slots=True)
class Lazy:
    """A factory that imports its target, a class or function, when it is called."""

    target: str  # module:attribute

    def load(self) -> Any:
        """The target itself."""
        module, _, attribute = self.target.partition(":")
        return getattr(import_module(module), attribute)

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.load()(*args, **options)


@dataclass(frozen=True, slots=True)
class LazyReward(Lazy):
    """A reward that changes its options before they are saved, such as relative paths, so that they hold anywhere."""

    settles: str  # module:function
    options: str = ""  # module:Section that describes the options; empty: the target's arguments do

    def settle(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        settled: Mapping[str, Any] = Lazy(self.settles)(options)
        return settled


@dataclass(frozen=True, slots=True)
class LazyChatFormat(Lazy):
    """A chat format; its class decides whether it fits a model's chat template."""

    sees_images: bool = False

    def matches(self, chat_template: str) -> bool:
        return bool(self.load().matches(chat_template))


@dataclass(frozen=True, slots=True)
class LazyEngine(Lazy):
    """An engine that changes a task's defaults to its own keys."""

    adapts: str  # module:function

    def adapt(self, defaults: Mapping[str, Any]) -> Mapping[str, Any]:
        adapted: Mapping[str, Any] = Lazy(self.adapts)(defaults)
        return adapted
