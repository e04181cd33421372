"""The recipes: every key exists, the verl engine takes the sizes, and no trajectory is cut by the sum of its parts."""

from __future__ import annotations

import pytest
from rlfactory_verl.config import VerlConfig
from rlfactory_verl.constraints import check_rules

from rlfactory_core.config import RunConfig
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.runner import read, resolve
from rlfactory_core.runner.resolved import look_up
from rlfactory_core.runner.resolving import load_recipe

pytest.importorskip("rlfactory_search")

RECIPES = [item.name for item in Registry().load("search").registrations if item.kind == "recipe"]
PROMPT_TOKENS = 300  # a question, the instruction and the tool's schema
MARKS = 10  # tokens of a chat template around a turn


@pytest.fixture(params=RECIPES)
def config(request: pytest.FixtureRequest) -> RunConfig:
    """As `rlfactory run --recipe` has it, before the engine has looked at the machine."""
    registry = Registry()
    return resolve(registry, read(None, [], load_recipe(request.param, registry))).config


def test_there_are_recipes() -> None:
    assert {*RECIPES} >= {"search-qwen3-4b", "search-qwen3-4b-1gpu"}


def test_the_plugin_and_the_engine_take_it(config: RunConfig) -> None:
    look_up(config, Registry())
    assert config.engine == "verl"
    assert VerlConfig.of(config).gpus, "a recipe says for how many GPUs it is"
    check_rules(config)


def test_a_trajectory_of_full_turns_and_results_is_not_cut(config: RunConfig) -> None:
    limits = config.rollout
    turns = limits.max_turns * (limits.max_turn_tokens + MARKS)
    results = limits.max_tool_calls * (config.tools.max_result_tokens + MARKS)
    assert PROMPT_TOKENS + turns + results <= limits.max_tokens
    assert limits.max_turns == limits.max_tool_calls + 1, "the last turn is for the answer"
