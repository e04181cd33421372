"""Episodes on a server of OpenEnv's protocol: prompts, actions, rewards and seeds."""

from __future__ import annotations

from pathlib import Path

import pytest
from openenv_server import Kind, openenv_server
from rlfactory_devkit import TaskBench, constant, oracle, script

from rlfactory_core import Message
from rlfactory_core.errors import UsageError
from rlfactory_core.protocols import EnvStart
from rlfactory_core.types import FaultKind, StopReason, ToolCall, Trajectory


def bench(url: str, *options: str) -> TaskBench:
    return TaskBench("openenv", [f"task.url={url}", *options])


def calling(name: str, **arguments: object) -> Message:
    return Message("assistant", "", tool_calls=(ToolCall("1", name, str(arguments), arguments),))


def opening(kind: Kind, *options: str) -> EnvStart:
    with openenv_server(kind) as server, bench(server.url, *options) as opened:
        return opened.run(opened.opening(opened.samples()[0]))


def play(kind: Kind, *turns: Message | str, options: tuple[str, ...] = ()) -> Trajectory:
    """One episode whose secret digit is 1."""
    said = [turn if isinstance(turn, Message) else Message("assistant", turn) for turn in turns]
    with openenv_server(kind) as server, bench(server.url, *options) as opened:
        (played,) = opened.play(script(*said), opened.rows("train")[:1])
        assert server.counts.seeds == [1]
    return played


def heard(played: Trajectory, turn: int) -> str:
    """What the model read after a turn, as the bench's chat format wrote it."""
    return bytes(token % 256 for token in played.turns[turn + 1].context_ids).decode()


def test_a_prompt_says_what_the_environment_is_and_what_it_takes() -> None:
    (prompt,) = opening("text").messages
    assert prompt.role == "user"
    assert "A digit is hidden. Guess it." in prompt.content
    assert "`guess`: one digit" in prompt.content
    assert prompt.content.endswith("A digit from 0 to 9.")
    assert "secret" not in prompt.content  # an observation's metadata is not for the model


def test_the_introduction_and_the_system_message_can_be_replaced() -> None:
    system, prompt = opening("text", "task.system=Be brief.", "task.introduction=Find it.").messages
    assert (system.role, system.content) == ("system", "Be brief.")
    assert prompt.content.startswith("Find it.\n\n")


def test_a_text_is_an_action_and_rewards_are_the_environments() -> None:
    played = play("text", "0", "1")
    assert [turn.reward for turn in played.turns] == [0.0, 1.0]
    assert (played.stop, played.reward) == (StopReason.ENV_DONE, 1.0)
    assert played.score is not None
    assert played.score.components == {"env_reward": 1.0}


@pytest.mark.parametrize(("kind", "turn"), [("text", "0"), ("mcp", calling("guess", digit=0))])
def test_so_many_steps_end_an_episode(kind: Kind, turn: Message | str) -> None:
    played = play(kind, turn, turn, turn, options=("task.max_steps=2",))
    assert (played.stop, len(played.turns), played.masked) == (StopReason.ENV_DONE, 2, False)


@pytest.mark.slow
def test_several_fields_are_a_tool_with_their_schema() -> None:
    (tool,) = opening("fields").tools
    assert (tool.name, tool.description) == ("act", "Guess the digit.")
    assert set(tool.parameters["properties"]) == {"digit", "sure"}
    assert tool.parameters["required"] == ["digit"]
    played = play("fields", calling("act", digit=0, sure=False), calling("act", digit=1))
    assert (played.stop, played.reward) == (StopReason.ENV_DONE, 1.0)


def test_an_invalid_action_is_told_to_the_model_and_the_episode_goes_on() -> None:
    played = play("fields", calling("act", sure=True), calling("guess"), calling("act", digit=1))
    assert "digit: Field required" in played.turns[0].results[0].content
    assert "there is no tool 'guess'. Known: act." in played.turns[1].results[0].content
    assert [fault.kind for fault in played.faults] == [FaultKind.POLICY] * 2
    assert played.reward == 1.0


def test_an_error_of_the_environment_is_told_to_the_model() -> None:
    played = play("text", "seven", "1")
    assert [(fault.kind, fault.source) for fault in played.faults] == [(FaultKind.TOOL, "action")]
    assert "invalid literal: 'seven'" in heard(played, 0)
    assert (played.reward, played.masked) == (1.0, False)


@pytest.mark.slow
def test_mcp_tools_are_tools_and_their_calls_are_steps() -> None:
    (tool,) = opening("mcp").tools
    assert (tool.name, tool.description) == ("guess", "Guess the digit.")
    assert tool.parameters["required"] == ["digit"]
    played = play("mcp", calling("guess", digit=4), calling("guess", digit=1))
    assert played.turns[0].results[0].content == "lower"
    assert (played.stop, played.reward) == (StopReason.ENV_DONE, 1.0)


def test_tools_beside_actions_give_no_reward() -> None:
    played = play("mixed", calling("guess", digit=1), "1")
    assert played.turns[0].results[0].content == "a hint: it is a digit"
    assert [turn.reward for turn in played.turns] == [0.0, 1.0]


def test_a_turn_without_a_call_ends_an_episode_of_tools() -> None:
    played = play("mcp", "I give up.")
    assert (played.stop, played.reward) == (StopReason.NO_TOOL_CALL, 0.0)


def test_the_calls_of_one_turn_are_made_until_the_episode_ends() -> None:
    calls = tuple(ToolCall(str(digit), "guess", "", {"digit": digit}) for digit in (0, 1, 2))
    played = play("mcp", Message("assistant", "", tool_calls=calls))
    assert [result.content for result in played.turns[0].results[:2]] == ["higher", "right"]
    assert played.turns[0].results[2].attempts == 0
    assert played.reward == 1.0


@pytest.mark.slow
def test_seeds_are_repeated_and_disjoint() -> None:
    with openenv_server() as server, bench(server.url, "task.samples=5", "task.eval_samples=3") as opened:
        seeds = {split: [sample.metadata["seed"] for sample in opened.rows(split)] for split in ("train", "eval")}
        assert [len(each) for each in seeds.values()] == [5, 3]
        assert not set(seeds["train"]) & set(seeds["eval"])
        opened.play(constant("5"), opened.rows("train")[:2], attempts=2)
        assert sorted(server.counts.seeds) == [1, 1, 2, 2]


def test_further_parameters_are_a_part_of_each_reset() -> None:
    with openenv_server() as server, bench(server.url, "task.reset.seed=7") as opened:
        (played,) = opened.play(script(Message("assistant", "7")), opened.rows("train")[:1])
        assert (played.reward, server.counts.seeds) == (1.0, [7])


def test_a_field_that_the_action_does_not_have_is_refused() -> None:
    with openenv_server("fields") as server, pytest.raises(UsageError, match=r"no such field\. Did you mean 'digit'"):
        bench(server.url, "task.field=digits").__enter__()


def test_servers_with_different_actions_are_refused() -> None:
    with openenv_server() as one, openenv_server("fields") as two, pytest.raises(UsageError, match="different actions"):
        bench(f"{one.url},{two.url}").__enter__()


def test_an_address_is_needed() -> None:
    with pytest.raises(UsageError, match="needs the address of a server: --url"):
        TaskBench("openenv")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["text", "fields", "mcp", "mixed"])
def test_without_a_solver_checks_play_what_fits_the_schema(kind: Kind) -> None:
    with openenv_server(kind) as server, bench(server.url) as opened:
        (played,) = opened.play(oracle(opened.task), opened.rows("train")[:1])
        assert not opened.task.has_solution
        assert not [fault for fault in played.faults if fault.kind is FaultKind.POLICY]
        with pytest.raises(UsageError, match=r"--solver FILE\.py:NAME"):
            opened.task.demonstrate(played.sample, played.sample.messages)


def test_a_solver_of_the_user_is_a_solution(tmp_path: Path) -> None:
    file = tmp_path / "solver.py"
    file.write_text("def right(sample, messages):\n    return str(sample.metadata['seed'] % 10)\n")
    with openenv_server() as server, bench(server.url, f"task.solver={file}:right") as opened:
        (played,) = opened.play(oracle(opened.task), opened.rows("train")[:1])
        assert (opened.task.has_solution, played.reward) == (True, 1.0)
