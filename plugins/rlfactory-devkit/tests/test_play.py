"""A conversation turn by turn: going back, changing a turn, and asking further."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from rlfactory_devkit import ScriptedSampler, ToyChatFormat
from rlfactory_devkit.conversation import Conversation

from rlfactory_core.clients import ServerModel
from rlfactory_core.errors import UsageError
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.protocols import Request, Sampled
from rlfactory_core.rollout import TokenModel
from rlfactory_core.runner import read, resolve
from rlfactory_core.tasks.opening import open_tasks
from rlfactory_core.types import Message, StopReason

PLUGIN = '''
from rlfactory_core import Sample, Task, hookimpl, tool

CALLS = []


@tool(stateful=True)
def find(name: str) -> str:
    """Find a person."""
    CALLS.append(name)
    return f"{name} is in Tarn ({len(CALLS)})"


class Places(Task):
    tools = [find]
    rewards = {"exact_match": 1.0}

    def samples(self, split):
        for name in ("Ann", "Ben"):
            yield Sample(id=name, prompt=f"Where is {name}?", answer="Tarn", split=split)


@hookimpl
def rlfactory_tasks(register):
    register("places", Places)
'''
LOOK = '<tool_call>{"name": "find", "arguments": {"name": "Ann"}}</tool_call>'
CHANGED = LOOK.replace("Ann", "Ben")
RIGHT, WRONG = "<answer>Tarn</answer>", "<answer>Velk</answer>"


@pytest.fixture
def plugin(tmp_path: Path) -> str:
    path = tmp_path / "places.py"
    path.write_text(PLUGIN, encoding="utf-8")
    return str(path)


Use = Callable[[Conversation], Awaitable[None]]


def converse(plugin: str, script: list[str], use: Use, *files: Path) -> ScriptedSampler:
    """Play with a model that says these texts, one after the other, whatever the session."""
    chat, said = ToyChatFormat(), iter(script)
    sampler = ScriptedSampler(lambda session, turn: next(said), chat)

    async def talk() -> None:
        registry = Registry()
        resolved = resolve(registry, read(None, [{"plugin": plugin}]))
        async with open_tasks(resolved.tasks) as opened:
            samples = opened.only.setup.samples("eval")
            play = Conversation(opened.only, TokenModel(chat, sampler), "toy", samples, *files)
            try:
                await play.open()
                await use(play)
            finally:
                await play.close()

    asyncio.run(talk())
    return sampler


def test_the_model_says_a_turn_when_it_is_told_to(plugin: str) -> None:
    async def use(play: Conversation) -> None:
        assert (play.turns(), play.ended) == ([], None)
        await play.step(0.7)
        (turn,) = play.turns()
        assert turn.text == LOOK
        assert turn.step.results[0].content.startswith("Ann is in Tarn")
        await play.step()
        assert play.ended is not None
        assert (play.ended.stop, play.ended.reward) == (StopReason.FINAL_ANSWER, 1.0)
        with pytest.raises(UsageError, match="The conversation has ended"):
            await play.step()

    sampler = converse(plugin, [LOOK, RIGHT], use)
    assert [params.temperature for params in sampler.params] == [0.7, 0.0]


def test_going_back_makes_the_calls_before_again(plugin: str) -> None:
    async def use(play: Conversation) -> None:
        await play.step()
        await play.step()
        assert play.ended is not None
        assert play.ended.reward == 0.0
        before = play.turns()[0].step.results[0].content
        await play.back(2)
        (turn,) = play.turns()
        assert turn.text == LOOK
        assert turn.step.results[0].content != before  # the tool counts its calls
        await play.step()
        assert play.ended is not None
        assert play.ended.reward == 1.0
        with pytest.raises(UsageError, match=r"There is no turn 3. 1 to 2"):
            await play.back(3)

    converse(plugin, [LOOK, WRONG, RIGHT], use)


def test_a_changed_turn_is_what_the_tools_and_the_model_see(plugin: str) -> None:
    async def use(play: Conversation) -> None:
        await play.step()
        await play.step()
        await play.edit(1, CHANGED)
        (turn,) = play.turns()
        assert turn.edited
        assert turn.step.results[0].content.startswith("Ben is in Tarn")
        assert play.ended is None
        await play.step()
        assert [turn.edited for turn in play.turns()] == [True, False]
        assert "Ben is in Tarn" in " ".join(message.content for message in play.messages())

    converse(plugin, [LOOK, WRONG, RIGHT], use)


def test_a_question_of_ones_own_is_not_scored_and_can_go_on(plugin: str) -> None:
    async def use(play: Conversation) -> None:
        await play.ask("And Zoe?")
        with pytest.raises(UsageError, match="has not ended"):
            await play.say("Sure?")
        await play.step()
        assert play.ended is not None
        assert play.ended.score is None
        await play.say("Sure?")
        assert [message.content for message in play.prompt] == ["And Zoe?", WRONG, "Sure?"]
        await play.step()
        assert play.turns()[0].text == RIGHT

    converse(plugin, [WRONG, RIGHT], use)


def test_orders_that_make_no_sense_are_refused_in_words(plugin: str, tmp_path: Path) -> None:
    async def use(play: Conversation) -> None:
        for order, problem in (
            ({"do": "bak"}, "There is no order 'bak'. Did you mean 'back'"),
            ({"do": "back"}, "back: missing 1 required positional argument: 'turn'"),
            ({"do": "sample", "sample": "Bem"}, "There is no held-out sample 'Bem'. Did you mean 'Ben'"),
            ({"do": "save"}, "There is nothing to save yet"),
        ):
            with pytest.raises(UsageError, match=problem):
                await play.do(order)

    converse(plugin, [], use)


def test_a_kept_conversation_goes_on_with_the_same_turns(plugin: str, tmp_path: Path) -> None:
    files = (tmp_path / "play.json", tmp_path / "shown.jsonl")
    views = []

    async def first(play: Conversation) -> None:
        await play.do({"do": "go"})
        await play.do({"do": "edit", "turn": 1, "text": CHANGED})
        await play.do({"do": "go"})
        await play.do({"do": "say", "text": "Sure?"})
        await play.do({"do": "step"})
        views.append(play.view())

    async def second(play: Conversation) -> None:
        views.append(play.view())
        await play.do({"do": "save"})

    converse(plugin, [LOOK, WRONG, WRONG, RIGHT], first, *files)
    converse(plugin, [], second, *files)
    assert views[0] == views[1]
    assert [turn["text"] for turn in views[1]["turns"]] == [RIGHT]
    assert "Sure?" in files[1].read_text()


class Served(ServerModel):
    """A model behind a server, whose answers are these."""

    def __init__(self, *answers: Message) -> None:
        self.answers = list(answers)

    async def answer(self, request: Request) -> Sampled:
        return Sampled(self.answers.pop(0))


def test_a_served_model_is_talked_to_in_messages(plugin: str) -> None:
    async def talk() -> None:
        registry = Registry()
        resolved = resolve(registry, read(None, [{"plugin": plugin}]))
        async with open_tasks(resolved.tasks) as opened:
            model = Served(Message("assistant", WRONG), Message("assistant", RIGHT))
            play = Conversation(opened.only, model, "served", opened.only.setup.samples("eval"))
            await play.open()
            await play.step()
            await play.edit(1, LOOK)
            assert play.turns()[0].text == LOOK.replace(">{", ">\n{").replace("}<", "}\n<")
            assert play.turns()[0].step.results[0].content.startswith("Ann is in Tarn")
            await play.step()
            assert play.ended is not None
            assert play.ended.reward == 1.0
            await play.close()

    asyncio.run(talk())
