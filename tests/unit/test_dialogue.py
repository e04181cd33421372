"""A user of another model: what each side sees, who is trained, and what a user that fails does to an attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conversations import CHAT, LIMITS, RecordingSampler, calling, check_exact, episode
from fake_openai import FakeServer, Reply, error, said, serve
from rlfactory_devkit import TaskBench, constant

from rlfactory_core import Message, Sample, ToolContext, UsageError, tool
from rlfactory_core.rollout import (
    DialogueEnv,
    Persona,
    SimulatedUser,
    TokenModel,
    UserOptions,
    WrittenModel,
    open_user,
    rollout,
)
from rlfactory_core.tools import DefaultToolManager
from rlfactory_core.types import StopReason, ToolCall, Trajectory

DESK = (Message("system", "Help the customer."),)
GREETED = (*DESK, Message("assistant", "Good morning!"))


@tool
def search(query: str) -> str:
    """Search the corpus."""
    return f"found {query}"


@tool
def restart(times: int) -> str:
    """Restart the router."""
    return f"restarted {times} times"


def user(*turns: Message | str, seen: list[Any] | None = None, **persona: Any) -> Any:
    """What makes the user of a context, who says these turns; each request goes into ``seen``."""
    script = iter(turns)

    def write(request: Any) -> Message:
        if seen is not None:
            seen.append(request)
        turn = next(script)
        return turn if isinstance(turn, Message) else Message("assistant", turn)

    return lambda context: SimulatedUser(WrittenModel(write), Persona("You are Ann.", **persona), context)


def calls(name: str, **arguments: Any) -> Message:
    return Message("assistant", "", tool_calls=(ToolCall("c1", name, "", arguments),))


def play(
    says: Sequence[str], make_user: Any, prompt: tuple[Message, ...] = DESK
) -> tuple[Trajectory, RecordingSampler, list[SimulatedUser]]:
    """An attempt in tokens whose policy says these texts."""
    sampler, users = RecordingSampler(says), []

    def make(sample: Sample, context: ToolContext) -> DialogueEnv:
        users.append(make_user(context))
        return DialogueEnv(sample, DefaultToolManager([search]), context, users[0])

    each = replace(episode(LIMITS, Sample("s", prompt)), make_env=make)
    return asyncio.run(rollout(each, TokenModel(CHAT, sampler))), sampler, users


def test_each_side_sees_its_own_conversation_and_only_the_policy_is_trained() -> None:
    seen: list[Any] = []
    says = ["Which network?", calling(query="network b"), "Restart it."]
    mine = user(
        "It is broken.", "Network b.", calls("restart", times=2), "Thanks ###STOP###", seen=seen,
        tools=DefaultToolManager([restart]),
    )  # fmt: skip
    played, sampler, (ann,) = play(says, mine, GREETED)
    assert (played.stop, played.faults) == (StopReason.ENV_DONE, ())
    check_exact(played.turns, sampler)
    assert sum(played.loss_mask) == played.num_sampled
    assert [spec.name for spec in played.tools] == ["search"]
    assert [message.role for message in played.turns[0].observed] == ["system", "assistant", "user"]
    assert [(m.role, m.content) for m in seen[-1].messages] == [
        ("system", "You are Ann."),
        ("user", "Good morning!"),
        ("assistant", "It is broken."),
        ("user", "Which network?"),
        ("assistant", "Network b."),
        ("user", "Restart it."),
        ("assistant", ""),
        ("tool", "restarted 2 times"),
    ]
    assert [spec.name for spec in seen[-1].tools] == ["restart"]
    assert played.info["user"] == (
        {"content": "It is broken."},
        {"content": "Network b."},
        {"call": "restart", "arguments": {"times": 2}, "result": "restarted 2 times"},
        {"content": "Thanks ###STOP###"},
    )
    assert len(ann.turns) == 4


def test_the_policy_begins_after_the_users_words_and_silence_ends() -> None:
    seen: list[Any] = []
    asked = (*DESK, Message("user", "It is broken."))
    played, _, _ = play(["Which one?", " "], user("The router.", seen=seen), asked)
    assert (played.stop, played.masked, len(played.turns)) == (StopReason.NO_TOOL_CALL, False, 2)
    assert played.turns[0].observed == ()
    roles = [message.role for message in seen[0].messages]
    assert roles == ["system", "user", "assistant", "user"]  # templates want the user's role first
    assert seen[0].messages[2].content == "It is broken."
    played, _, _ = play(["<answer>me</answer>"], user("never"), asked)
    assert (played.stop, played.faults) == (StopReason.FINAL_ANSWER, ())


@pytest.mark.parametrize(
    "turn",
    [
        pytest.param("  ", id="empty"),
        pytest.param(calls("search", query="x"), id="not-its-tool"),
        pytest.param(
            Message("assistant", "", tool_calls=(ToolCall("c", "restart", "{", error="not JSON"),)), id="unreadable"
        ),
    ],
)
def test_a_user_that_breaks_its_role_is_asked_again_and_then_an_infra_fault(turn: Message | str) -> None:
    seen: list[Any] = []
    played, _, _ = play(["Hello."], user("Hi.", turn, turn, "Bye ###STOP###", seen=seen))
    assert (played.stop, played.masked) == (StopReason.ENV_DONE, False)
    assert [request.params.temperature for request in seen] == [0.0, 0.0, 0.7, 0.7]
    assert len({request.params.seed for request in seen}) == 4
    played, _, _ = play(["Hello."], user("Hi.", *[turn] * 3))
    assert (played.stop, played.masked) == (StopReason.FAULT, True)
    (fault,) = played.faults
    assert fault.source == "user"
    assert "breaks its role" in fault.message


def test_limits_of_a_user() -> None:
    restarts = [calls("restart", times=number) for number in range(4)]
    mine = user("Hi.", *restarts, tools=DefaultToolManager([restart]), max_calls=3)
    played, _, _ = play(["Restart it."], mine)
    assert played.masked
    assert "more than 3 turns" in played.faults[0].message
    played, _, _ = play(["Hi."], user("Bye ###STOP###"))  # before anything was said
    assert (played.stop, played.masked, played.turns) == (StopReason.FAULT, True, ())
    refused = user("Hi.", calls("restart", times="often"), "Bye ###STOP###", tools=DefaultToolManager([restart]))
    played, _, _ = play(["Restart it."], refused)  # a wrong call of its own tool: the user reads why
    assert (played.stop, played.faults) == (StopReason.ENV_DONE, ())
    assert "wrong arguments" in played.info["user"][1]["result"]


def test_a_user_in_tokens_keeps_what_a_trainer_needs() -> None:
    sampler = RecordingSampler(["Hi.", "", "Bye ###STOP###"])

    def make(context: ToolContext) -> SimulatedUser:
        return SimulatedUser(TokenModel(CHAT, sampler), Persona("You are Ann."), context)

    played, _, (ann,) = play(["Hello."], make)
    assert played.stop is StopReason.ENV_DONE
    assert len(ann.turns) == 3  # the empty one, too: it was sampled
    check_exact(tuple(ann.turns), sampler)
    assert not sampler.live


TASK = """
from rlfactory_core import Message, Sample, Task, hookimpl
from rlfactory_core.rollout import DialogueEnv, Persona, SimulatedUser, UserOptions, open_user


class Talk(Task):
    rewards = {"env_reward": 1.0}
    Config = UserOptions

    def samples(self, split):
        yield Sample("s", "It is broken.")

    async def open(self):
        self.model = await open_user(self.config)

    async def close(self):
        await self.model.close()

    def make_env(self, sample, manager, context):
        return DialogueEnv(sample, manager, context, SimulatedUser(self.model, Persona("Ann"), context))


@hookimpl
def rlfactory_tasks(register):
    register("talk", Talk)
"""


def talk(folder: Path, server: FakeServer, policy: str) -> Trajectory:
    file = folder / "talk.py"
    file.write_text(TASK.replace('{"env_reward": 1.0}', '{"format": 1.0}'))
    with TaskBench(str(file), [{"task": {"user": server.url}}]) as bench:
        (played,) = bench.play(constant(policy), bench.samples())
    return played


def test_a_user_behind_a_server(tmp_path: Path) -> None:
    with serve(lambda body: said("Thanks. ###STOP###")) as server:
        played = talk(tmp_path, server, "Which one?")
    assert (played.stop, played.faults) == (StopReason.ENV_DONE, ())
    (body,) = server.chats
    assert body["messages"][-1] == {"role": "user", "content": "Which one?"}
    assert body["temperature"] == 0.0


@pytest.mark.parametrize(
    "reply", [error(400, "no such parameter"), Reply(body={"choices": []}), said("a", finish="length")]
)
def test_a_server_that_fails_masks_the_attempt(tmp_path: Path, reply: Reply) -> None:
    first = iter([said("hello")])  # the client's own question at the start
    with serve(lambda body: next(first, reply)) as server:
        played = talk(tmp_path, server, "Which one?")
    assert (played.stop, played.masked) == (StopReason.FAULT, True)
    assert [fault.source for fault in played.faults] == ["user"]


def test_a_server_of_several_models_has_to_be_told_which() -> None:
    with (
        serve(lambda body: said("hello"), models=("a", "b")) as server,
        pytest.raises(UsageError, match="--user-model"),
    ):
        asyncio.run(open_user(UserOptions(user=server.url)))
