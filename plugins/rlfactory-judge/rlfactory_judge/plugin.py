"""What rlfactory finds under the entry point ``judge``; nothing heavy is imported here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlfactory_core import Lazy, LazyReward, hookimpl
from rlfactory_core.hookspecs import Register

RLFACTORY_API = ">=1,<2"
FACTORY = "rlfactory_judge.scoring.factory"


class JudgeReward(LazyReward):
    """The reward, which ``--judge URL`` adds to a run or moves to another server."""

    __slots__ = ()

    def at(self, options: Mapping[str, Any], url: str) -> Mapping[str, Any]:
        """The options without the place of another server; a server may give a pool's model another name."""
        dropped = {"url", "placement", "gpus", "tensor_parallel"}
        dropped |= {"model"} if options.get("placement") == "pool" else set()
        return {**{name: value for name, value in options.items() if name not in dropped}, "url": url}


@hookimpl
def rlfactory_tasks(register: Register) -> None:
    register("judge", Lazy("rlfactory_judge.demo.task:JudgeDemo"))


@hookimpl
def rlfactory_reward_scorers(register: Register) -> None:
    options = "rlfactory_judge.options:JudgeOptions"
    register("judge", JudgeReward(f"{FACTORY}:make_judge", f"{FACTORY}:resolved_options", options))


@hookimpl
def rlfactory_report_sections(register: Register) -> None:
    register("calibration", Lazy("rlfactory_judge.trust.gate:report_section"))


@hookimpl
def rlfactory_commands(register: Register) -> None:
    register("judge", Lazy("rlfactory_judge.commands:judge").load)
