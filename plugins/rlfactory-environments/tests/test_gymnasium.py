"""Gymnasium's and TextArena's own environments, played in text."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from rlfactory_core import Message, Sample
from rlfactory_core.errors import ConfigError, UsageError
from rlfactory_core.runner import Policy, TaskBench, constant
from rlfactory_core.types import StopReason, Trajectory

gym = pytest.importorskip("gymnasium", reason="nox -s environments installs it")
arena = pytest.importorskip("textarena", reason="nox -s environments installs it")

from rlfactory_environments.gymnasium.gym_game import NAMES, GymGame  # noqa: E402
from rlfactory_environments.gymnasium.spaces import actions_of  # noqa: E402
from rlfactory_environments.gymnasium.task import GymnasiumTask  # noqa: E402
from rlfactory_environments.gymnasium.textarena_game import TextArenaGames  # noqa: E402

TEXT_GAMES = ("TextArena/GuessTheNumber-v0", "TextArena/FrozenLake-v0-random", "TextArena/TowerOfHanoi-v0")


def bench(environment: str, *more: str) -> TaskBench:
    return TaskBench("gymnasium", [f"task.environment={environment}", "task.train_seeds=8", "task.eval_seeds=4", *more])


def drawn(actions: Sequence[str]) -> Policy:
    """Random actions that depend on the sample and the turn only."""

    def policy(sample: Sample, messages: Sequence[Message], *_: object) -> str:
        turn = sum(message.role == "assistant" for message in messages)
        return random.Random(f"{sample.metadata['seed']} {turn}").choice(actions)

    return policy


def said(trajectory: Trajectory) -> list[str]:
    return [turn.message.content for turn in trajectory.turns]


@pytest.mark.parametrize("name", ["FrozenLake-v1", "Blackjack-v1", "CartPole-v1"])
def test_gymnasiums_own_loop_gives_the_same_rewards(name: str) -> None:
    names = NAMES[type(gym.make(name).unwrapped).__name__]
    with bench(name) as open_bench:
        played = open_bench.play(drawn(names), open_bench.samples())
    for trajectory in played:
        environment = gym.make(name)
        environment.reset(seed=trajectory.sample.metadata["seed"])
        rewards, over = [], False
        for action in said(trajectory):
            _, reward, terminated, truncated, _ = environment.step(names.index(action))
            rewards.append(float(reward))
            over = terminated or truncated
        assert [turn.reward for turn in trajectory.turns] == rewards
        assert over == (trajectory.stop is StopReason.ENV_DONE)
        assert trajectory.score is not None
        assert trajectory.score.components["env_reward"] == sum(rewards) == trajectory.reward


@pytest.mark.parametrize("name", TEXT_GAMES)
def test_textarenas_own_loop_gives_the_same_rewards_though_games_are_played_at_once(name: str) -> None:
    with bench(name) as open_bench:
        actions = [f"[{each}]" for each in ("5", "12", "right", "down", "A B", "A C")]
        played = open_bench.play(drawn(actions), open_bench.samples())
    for trajectory in played:
        game = arena.make(name.removeprefix("TextArena/"))
        random.seed(trajectory.sample.metadata["seed"])
        game.reset(num_players=1, seed=trajectory.sample.metadata["seed"])
        done = False
        for action in said(trajectory):
            game.get_observation()
            done, _ = game.step(action=action)
        rewards, _ = game.close()
        assert done == (trajectory.stop is StopReason.ENV_DONE)
        assert trajectory.reward == (rewards[0] if done else 0.0)


def test_the_model_reads_the_rules_the_board_and_its_actions_by_name() -> None:
    with bench("FrozenLake-v1") as open_bench:
        (played,) = open_bench.play(constant("down"), open_bench.samples(limit=1))
        text = open_bench.chat.decode(played.turns[0].context_ids)
    assert "Frozen lake involves crossing a frozen lake" in text
    assert "left, down, right, up" in text
    assert "[S]FFF" in text, "where the player is stands in brackets"
    assert "\x1b" not in text


def test_a_textarena_game_shows_what_is_new() -> None:
    with bench("TextArena/GuessTheNumber-v0") as open_bench:
        (played,) = open_bench.play(constant("[3]"), open_bench.samples(limit=1))
        first, second = (open_bench.chat.decode(turn.context_ids) for turn in played.turns[:2])
    assert "You have to guess the number" in first
    assert "You have to guess the number" not in second
    assert "[3]" not in second, "its own move is no news for the model"
    assert "The target number is" in second


def test_training_and_evaluation_have_different_seeds() -> None:
    task = GymnasiumTask({"environment": "FrozenLake-v1"})
    seeds = [{each.metadata["seed"] for each in task.samples(split)} for split in ("train", "eval")]
    assert len(seeds[0]) == 512
    assert len(seeds[1]) == 64
    assert not seeds[0] & seeds[1]


@pytest.mark.parametrize(
    ("space", "text", "action"),
    [
        (gym.spaces.Discrete(3), "2", 2),
        (gym.spaces.Discrete(2, start=5), "I think so.\n[6]", 6),
        (gym.spaces.MultiDiscrete([3, 4]), "2 3", [2, 3]),
        (gym.spaces.MultiBinary(3), "[1, 0, 1]", [1, 0, 1]),
        (gym.spaces.Box(-1.0, 1.0, (2,)), "so [0.5, -0.25]", [0.5, -0.25]),
        (gym.spaces.Text(8), "word", "word"),
    ],
)
def test_actions_are_read_from_text(space: Any, text: str, action: Any) -> None:
    read = actions_of(space, ()).read(text)
    assert (read.tolist() if hasattr(read, "tolist") else read) == action
    assert space.contains(read)


@pytest.mark.parametrize(
    ("space", "text"),
    [
        (gym.spaces.Discrete(3), "3"),
        (gym.spaces.Discrete(3), "zero or one"),
        (gym.spaces.MultiDiscrete([3, 4]), "2 4"),
        (gym.spaces.MultiDiscrete([3, 4]), "2.5 3"),
        (gym.spaces.Box(-1.0, 1.0, (2,)), "0.5"),
        (gym.spaces.Box(-1.0, 1.0, (1,)), "1e999"),
        (gym.spaces.Text(4), "too long"),
    ],
)
def test_a_text_that_is_no_action_is_refused_in_words(space: Any, text: str) -> None:
    with pytest.raises(ValueError, match="no action"):
        actions_of(space, ()).read(text)


class Picture(gym.Env):  # type: ignore[misc]
    observation_space = gym.spaces.Box(0, 255, (64, 64, 3))
    action_space = gym.spaces.Discrete(2)


class Knobs(gym.Env):  # type: ignore[misc]
    observation_space = gym.spaces.Discrete(2)
    action_space = gym.spaces.Dict({"a": gym.spaces.Discrete(2)})


@pytest.fixture
def registered() -> Iterator[None]:
    gym.register("Picture-v0", Picture)
    gym.register("Knobs-v0", Knobs)
    yield
    for name in ("Picture-v0", "Knobs-v0"):
        gym.registry.pop(name)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Picture-v0", "12,288 numbers"),
        ("Knobs-v0", "actions cannot be written as text"),
        ("NoSuchLake-v1", "cannot make 'NoSuchLake-v1'"),
        ("TextArena/TicTacToe-v0", "for several players"),
        ("TextArena/Froze-v0", "Did you mean"),
    ],
)
@pytest.mark.usefixtures("registered")
def test_what_cannot_be_played_is_refused_before_a_run(name: str, why: str) -> None:
    with pytest.raises(UsageError, match=why), bench(name) as open_bench:
        open_bench.samples()


def test_an_environment_has_to_be_named() -> None:
    with pytest.raises(ConfigError, match="--environment"), TaskBench("gymnasium") as open_bench:
        open_bench.samples()


def test_names_of_actions_have_to_fit() -> None:
    with pytest.raises(UsageError, match="2 names, and the environment 4 actions"):
        GymGame(gym.make("FrozenLake-v1"), "FrozenLake-v1", ("left", "right"), "")


def test_a_textarena_game_leaves_pythons_generator_as_it_was() -> None:
    random.seed(7)
    before = random.getstate()
    game = TextArenaGames("GuessTheNumber-v0", {}, "").make()
    game.reset(1)
    game.step("[3]")
    assert random.getstate() == before


def test_a_solver_of_the_user_is_a_solution(tmp_path: Any) -> None:
    file = tmp_path / "solver.py"
    file.write_text(
        "def right(sample, messages):\n    said = sum(each.role == 'assistant' for each in messages)\n"
        "    return ['right', 'right', 'down', 'down', 'down', 'right'][said]\n"
    )
    still = 'task.arguments={"is_slippery": false}'
    with bench("FrozenLake-v1", f"task.solver={file}:right", still) as open_bench:
        assert open_bench.task.has_solution
        policy: Policy = lambda sample, messages, *_: open_bench.task.solve(sample, messages)  # noqa: E731
        played = open_bench.play(policy, open_bench.samples())
    assert [each.reward for each in played] == [1.0] * 8
    with pytest.raises(ConfigError, match="cannot be loaded"):
        _ = GymnasiumTask({"environment": "FrozenLake-v1", "solver": f"{file}:wrong"}).solver


@pytest.mark.slow
@pytest.mark.parametrize("name", ["FrozenLake-v1", "Blackjack-v1", "TextArena/GuessTheNumber-v0"])
def test_a_tiny_model_trains_on_it_for_three_steps(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    import blank_model

    with bench(name) as open_bench:
        played = open_bench.play(constant("1"), open_bench.samples())
        texts = [open_bench.chat.decode(turn.context_ids) for each in played for turn in each.turns]
    blank_model.train_three_steps(tmp_path, texts, "gymnasium", name, {"train_seeds": 6, "eval_seeds": 2})
