"""The default tiny model of a task that says how it is solved: what it is shown, and what an author is told."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from recipes import made, shown
from rlfactory_devkit.tokenizers import chat_template
from said import Said
from stock_task import Stock, count

from rlfactory_core import Message, Sample, Section, Task, TinyModelRecipe, ToolContext, tool
from rlfactory_core.engines.tiny import TinyModel
from rlfactory_core.errors import ModelError, PluginError
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.protocols import EnvStart
from rlfactory_core.rollout import ToolEnv
from rlfactory_core.runner import read, resolve
from rlfactory_core.tasks.demonstrations import demonstrated_recipe, recipe_of
from rlfactory_core.tasks.setup import TaskSetup
from rlfactory_core.tasks.solving import DEFAULTS, tiny_defaults
from rlfactory_core.tiny import answer_text, call

FILE = str(Path(__file__).parent.parent / "support" / "stock_task.py")


def refusal(task: Task) -> str:
    with pytest.raises(PluginError) as refused:
        recipe_of(TaskSetup(task))
    return str(refused.value)


# --- what is shown --------------------------------------------------------------------------------------------------


def test_the_model_is_first_shown_how_samples_are_solved() -> None:
    answers = {(sample.prompt, sample.answer) for sample in Stock().samples("train")}
    for asked, looks, found, ends in shown(made(Stock()), stage=0):
        assert looks.tool_calls[0].name == found.name == "count"
        assert looks.tool_calls[0].id == found.tool_call_id
        assert ends.content == answer_text(found.content)
        assert (asked.content, found.content) in answers


def test_then_it_is_shown_episodes_that_leave_something_out() -> None:
    careless = shown(made(Stock()), stage=1)
    early = [each for each in careless if len(each) == 2]
    whole = [each for each in careless if len(each) == 4]
    assert len(early) + len(whole) == len(careless)
    assert 0.4 < len(early) / len(careless) < 0.8
    right = [each for each in whole if each[3].content == answer_text(each[2].content)]
    assert 0.5 < len(right) / len(whole) < 1.0
    assert any("</answer>" not in each[-1].content for each in careless)


def test_it_is_examined_on_episodes_that_it_is_not_shown() -> None:
    class Numbered(Stock):
        def samples(self, split: str) -> list[Sample]:
            return [replace(sample, prompt=f"{sample.id}: {sample.prompt}") for sample in super().samples(split)]

    recipe = made(Numbered())
    rng = random.Random(0)
    examined = [recipe.probe(rng) for _ in range(100)]
    learnt = shown(recipe, stage=0, number=2000)
    assert not [each for each in examined if each in learnt]


def test_the_same_seed_and_answers_give_the_same_recipe_and_others_another_one() -> None:
    class Generous(Stock):
        tools = [tool(lambda item: "99", name="count", description="Count.")]

    first, again, other = (made(Stock(seed=seed)) for seed in (3, 3, 4))
    assert first.fingerprint == again.fingerprint
    assert shown(first, 1) == shown(again, 1)
    assert len({first.fingerprint, other.fingerprint, made(Generous(seed=3)).fingerprint}) == 3


def test_another_task_of_the_same_options_is_played_within_a_running_loop_and_closed() -> None:
    events: list[str] = []

    class Held(Stock):
        class Config(Section):
            shop: str = ""

        config: Config

        async def open(self) -> None:
            events.append(f"open {self.config.shop} {self.seed}")

        async def close(self) -> None:
            events.append("close")

    async def engine() -> TinyModelRecipe:
        return made(Held({"shop": "corner"}, seed=2))

    assert asyncio.run(engine()).tools == (Stock.tools[0].spec,)
    assert events == ["open corner 2", "close"]


class Counted(Stock):
    """Counts how often it is played."""

    opened = 0

    async def open(self) -> None:
        type(self).opened += 1


def test_episodes_come_from_the_cache_until_code_options_or_samples_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLFACTORY_CACHE", str(tmp_path))
    monkeypatch.setattr(Counted, "opened", 0)
    first, again = (recipe_of(TaskSetup(Counted()), code="v1") for _ in range(2))
    assert first is not None
    assert again is not None
    assert (first.fingerprint, first.tools) == (again.fingerprint, again.tools)
    assert (shown(first, 1), Counted.opened) == (shown(again, 1), 1)
    recipe_of(TaskSetup(Counted()), code="v2")
    recipe_of(TaskSetup(Counted(seed=1)), code="v1")
    recipe_of(TaskSetup(Counted()))  # nothing tells its code
    assert Counted.opened == 4
    for file in (tmp_path / "demonstrations").glob("*/*.json"):
        file.write_text(file.read_text()[:-9])
    recipe_of(TaskSetup(Counted()), code="v1")
    assert Counted.opened == 5


def test_a_teacher_may_be_another_than_the_oracle() -> None:
    class Taught(Stock):
        def solve(self, sample: Sample, messages: Sequence[Message]) -> Message:
            return Message("assistant", answer_text(sample.answer))  # without a look: no model can learn it

        demonstrate = Stock.solve

    assert all(len(episode) == 4 for episode in shown(made(Taught()), stage=0))

    class Mistaken(Stock):
        def demonstrate(self, sample: Sample, messages: Sequence[Message]) -> Message:
            raise KeyError(sample.id)

    assert "Mistaken.demonstrate, sample 'train-" in refusal(Mistaken())


# --- what an author is told -----------------------------------------------------------------------------------------


def test_a_mistake_in_solve_is_told_with_its_sample_and_line() -> None:
    class Mistaken(Stock):
        def solve(self, sample: Sample, messages: Sequence[Message]) -> Message:
            raise KeyError(sample.metadata["itme"])

    assert "Mistaken.solve, sample 'train-" in refusal(Mistaken())
    assert "turn 1: KeyError: 'itme' (test_demonstrations.py, line " in refusal(Mistaken())


def test_an_episode_without_an_end_is_told_with_its_sample() -> None:
    class Endless(Stock):
        def solve(self, sample: Sample, messages: Sequence[Message]) -> Message:
            return Message("assistant", "", tool_calls=(call("count", item="figs"),))

    told = refusal(Endless())
    assert "Endless.solve does not solve sample 'train-" in told
    assert "it has not ended after 8 turns" in told


def test_a_call_that_is_wrong_is_told_as_the_model_would_be() -> None:
    class Misspelt(Stock):
        def solve(self, sample: Sample, messages: Sequence[Message]) -> Message:
            return Message("assistant", "", tool_calls=(call("cuont", item="figs"),))

    told = refusal(Misspelt())
    assert "turn 1, cuont: " in told
    assert "'count'" in told


def with_outages(lost: Callable[[Sample], bool]) -> tuple[Task, Said]:
    """Its tool gives no answer in some episodes."""

    @tool(name="count", stateful=True)
    async def look(item: str, context: ToolContext) -> str:
        """Count what is in the shop."""
        if lost(context.sample):
            raise ConnectionError("the shop is closed")
        return await count(item, context)

    class Closed(Stock):
        tools = [look]

    task, heard = Closed(), Said()
    task.progress = heard
    return task, heard


def test_an_episode_that_an_outage_loses_is_played_again() -> None:
    seen: set[str] = set()

    def once(sample: Sample) -> bool:
        first = sample.id not in seen and len(seen) % 10 == 3
        seen.add(sample.id)
        return first

    task, heard = with_outages(once)
    made(task)
    assert heard.lines == []


def test_episodes_that_are_always_lost_are_left_out_unless_there_are_too_many() -> None:
    task, heard = with_outages(lambda sample: sample.metadata["item"] == "plums")
    episodes = [demonstration[0].content for demonstration in shown(made(task), 0)]
    assert episodes
    assert not any("plums" in text for text in episodes)
    assert "demonstrations were lost. The first: 1 of 1 trajectories were masked: count 1 (" in heard.lines[0]
    told = refusal(with_outages(lambda sample: sample.metadata["item"] > "c")[0])
    assert "demonstrations of Closed.solve were lost because of the tools. The first, 3 times:" in told


def test_they_are_played_in_the_environment_of_the_run() -> None:
    class Rude(ToolEnv):
        async def start(self) -> EnvStart:
            start = await super().start()
            return replace(start, messages=(Message("system", "Be rude."), *start.messages))

    task = Stock()
    recipe = recipe_of(TaskSetup(task, make_env=Rude))
    assert recipe is not None
    assert shown(recipe, 0, 1)[0][0].content == "Be rude."


@pytest.mark.slow
@pytest.mark.parametrize("said", ["42", None, Message("user", "42")])
def test_what_is_no_turn_is_told(said: Any) -> None:
    class Plain(Stock):
        def solve(self, sample: Sample, messages: Sequence[Message]) -> Message:
            return said  # type: ignore[no-any-return]

    assert "expected a Message of the role 'assistant'" in refusal(Plain())


def test_without_samples_of_its_own_a_model_has_to_be_named() -> None:
    class Empty(Stock):
        def samples(self, split: str) -> list[Sample]:
            return []

    assert "--model" in refusal(Empty())


def test_a_task_that_does_not_say_how_it_is_solved_has_no_model_and_the_refusal_says_what_would_help() -> None:
    class Silent(Stock):
        solve = Task.solve

    assert recipe_of(TaskSetup(Silent())) is None
    registry = Registry()
    config = resolve(registry, read(None, [{"plugin": FILE}])).config
    with pytest.raises(ModelError, match=r"--model .* overriding Task\.solve"):
        TinyModel.of(config, TaskSetup(Silent()), ())


# --- defaults -------------------------------------------------------------------------------------------------------


def test_a_run_of_the_default_model_has_defaults_that_suit_it_below_the_tasks_own() -> None:
    class Firm(Stock):
        defaults = {"rollout": {"max_turns": 3}}
        tiny_defaults = {"train": {"steps": 7}}

    firm = tiny_defaults(Firm())
    assert firm["rollout"] == {**DEFAULTS["rollout"], "max_turns": 3}
    assert firm["train"] == {**DEFAULTS["train"], "steps": 7}
    config = resolve(Registry(), read(None, [{"plugin": FILE}])).config
    assert config.train.lr == DEFAULTS["train"]["lr"]
    assert resolve(Registry(), read(None, [{"plugin": FILE, "model": "some/model"}])).config.train.lr == 1e-6


def test_a_recipe_of_ones_own_keeps_the_defaults_of_training() -> None:
    class Changed(Stock):
        tiny_defaults = {"train": {"steps": 7}}

        def tiny_model(self) -> TinyModelRecipe:
            return replace(demonstrated_recipe(self), lr=1e-2)

    assert tiny_defaults(Changed())["train"] == {**DEFAULTS["train"], "steps": 7}


# --- how it is written ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "tokens"),
    [
        ("qwen3", ()),
        ("llama3", ("<|eot_id|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>")),
    ],
)
def test_a_chat_template_of_ones_own_is_what_the_demonstrations_are_written_in(
    family: str, tokens: tuple[str, ...]
) -> None:
    tiny_model = pytest.importorskip(
        "rlfactory_core.engines.local.tiny.tiny_model", reason="needs rlfactory-core[local]"
    )
    from rlfactory_core.engines.local.tiny.warmstart import encode
    from rlfactory_core.runner.making import make_chat

    registry = Registry()
    config = resolve(registry, read(None, [{"plugin": FILE}])).config
    recipe = made(Stock())
    assert recipe.tools is not None
    if tokens:
        recipe = replace(recipe, chat_template=chat_template(family), special_tokens=tokens)
    chat = make_chat(config.chat, registry)(tiny_model.recipe_tokenizer(recipe))
    assert chat.name == family
    (demonstration, *_) = shown(recipe, 0)
    asked, looks, found, ends = demonstration
    sequence = encode(chat, recipe.tools, demonstration)
    prompt = chat.initial_ids((asked,), recipe.tools)
    assert sequence.ids[: len(prompt)] == prompt
    turns: list[list[int]] = [[]]
    for token, own in zip(sequence.ids, sequence.loss_mask, strict=True):
        if own:
            turns[-1].append(token)
        elif turns[-1]:
            turns.append([])
    assert [turn[-1] for turn in turns] == [chat.stop_token_ids[0]] * 2
    first, second = (chat.parse(turn, recipe.tools) for turn in turns)
    assert [(made.name, made.arguments) for made in first.tool_calls] == [("count", looks.tool_calls[0].arguments)]
    assert second.content == ends.content
    context = [token for token, own in zip(sequence.ids, sequence.loss_mask, strict=True) if not own]
    assert tuple(context[len(prompt) :]) == chat.observation_ids((found,))
