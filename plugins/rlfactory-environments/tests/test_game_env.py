"""What an episode makes of a game that works, hangs, raises, or is told nonsense."""

from __future__ import annotations

import asyncio
import math
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from rlfactory_environments.gymnasium.env import GameEnv
from rlfactory_environments.gymnasium.game import IllegalActionError, Seen
from rlfactory_environments.gymnasium.generator import SharedGenerator

from rlfactory_core import Message, Sample
from rlfactory_core.protocols import EnvStep
from rlfactory_core.types import FaultKind, StopReason
from rlfactory_core.utils.threads import BlockingPool

SAMPLE = Sample("train-0", "a game, seed 1", metadata={"seed": 1})


class Counting:
    """Ends with the number of its steps as the reward when it is told to stop."""

    def __init__(self, step: Callable[[str], Seen] | None = None) -> None:
        self.closed = threading.Event()
        self._step, self.steps = step, 0

    def reset(self, seed: int) -> Seen:
        return Seen(f"Begin with {seed}.")

    def step(self, said: str) -> Seen:
        self.steps += 1
        if self._step is not None:
            return self._step(said)
        if said not in ("go", "stop"):
            raise IllegalActionError("Say go or stop.")
        return Seen(said, reward=1.0, terminated=said == "stop", facts={"steps": self.steps})

    def actions(self) -> tuple[str, ...]:
        return ("go", "stop")

    def close(self) -> None:
        self.closed.set()


def play(game: Counting, *said: str, deadline_s: float = 30.0) -> list[EnvStep]:
    """The steps of an episode, which is closed at the end."""

    async def run() -> list[EnvStep]:
        pool = BlockingPool("test")
        env = GameEnv(
            SAMPLE, lambda: game, pool, deadline_s=deadline_s, illegal=1, illegal_reward=-2.0, system="Play well."
        )
        start = await env.start()
        assert [each.role for each in start.messages] == ["system", "user"]
        steps = [await env.step(Message("assistant", text)) for text in said]
        await env.close()
        pool.close()
        return steps

    return asyncio.run(run())


def test_a_game_is_played_to_its_end_and_closed() -> None:
    game = Counting()
    first, last = play(game, "go", " stop\n")
    assert (first.messages[0].content, first.reward, first.stop) == ("go", 1.0, None)
    assert (last.reward, last.stop) == (1.0, StopReason.ENV_DONE)
    assert last.info == {"steps": 2, "terminated": True, "truncated": False}
    assert game.closed.is_set()


def test_a_games_own_limit_is_told_from_its_end() -> None:
    (step,) = play(Counting(lambda said: Seen("over", truncated=True)), "go")
    assert step.stop is StopReason.ENV_DONE
    assert step.info == {"terminated": False, "truncated": True}


def test_an_illegal_action_is_answered_and_costs_no_step_and_no_fault() -> None:
    game = Counting()
    wrong, right, again, end = play(game, "fly", "go", "fly", "fly")
    assert (wrong.messages[0].content, wrong.stop, wrong.results) == ("Say go or stop.", None, ())
    assert [wrong.reward, right.reward, again.reward, end.reward] == [-2.0, 1.0, -2.0, -2.0]
    assert right.messages[0].content == "go"
    assert again.stop is None, "a legal action begins the count anew"
    assert end.stop is StopReason.ENV_DONE
    assert end.info == {"illegal_actions": 3}


@pytest.mark.parametrize("reward", [math.nan, math.inf])
def test_a_reward_that_is_no_number_masks(reward: float) -> None:
    (step,) = play(Counting(lambda said: Seen("", reward=reward)), "go")
    assert step.stop is StopReason.FAULT
    assert step.results[0].fault is FaultKind.INFRA


def test_a_game_that_raises_masks_and_says_why() -> None:
    def fail(said: str) -> Seen:
        raise KeyError("board")

    (step,) = play(Counting(fail), "go")
    assert (step.stop, step.reward) == (StopReason.FAULT, 0.0)
    assert "KeyError: 'board'" in step.results[0].reason


def test_a_game_that_cannot_begin_masks() -> None:
    class Broken(Counting):
        def reset(self, seed: int) -> Seen:
            raise OSError("no such level")

    (step,) = play(Broken(), "go")
    assert step.stop is StopReason.FAULT
    assert "no such level" in step.results[0].reason


def test_a_step_that_hangs_masks_and_the_game_is_closed_when_it_ends() -> None:
    release = threading.Event()

    def hang(said: str) -> Seen:
        release.wait(60)
        return Seen("late")

    game = Counting(hang)
    (step,) = play(game, "go", deadline_s=0.2)
    assert step.stop is StopReason.FAULT
    assert "no answer within 0.2 s" in step.results[0].reason
    assert not game.closed.is_set(), "a game is not closed while it moves"
    release.set()
    assert game.closed.wait(60)


def test_a_blocking_step_does_not_hold_the_event_loop() -> None:
    both = threading.Barrier(2, timeout=60)

    def meet(said: str) -> Seen:
        both.wait()
        return Seen("met", terminated=True)

    async def run() -> list[EnvStep]:
        pool = BlockingPool("test")
        envs = [
            GameEnv(SAMPLE, lambda: Counting(meet), pool, deadline_s=30.0, illegal=0, illegal_reward=0.0, system="")
            for _ in range(2)
        ]
        await asyncio.gather(*(env.start() for env in envs))
        steps = await asyncio.gather(*(env.step(Message("assistant", "go")) for env in envs))
        await asyncio.gather(*(env.close() for env in envs))
        pool.close()
        return list(steps)

    assert [step.stop for step in asyncio.run(run())] == [StopReason.ENV_DONE] * 2


def test_a_game_that_hangs_does_not_hold_up_the_others_and_cannot_change_their_numbers() -> None:
    generator, hangs, release = SharedGenerator(), threading.Event(), threading.Event()
    seeded = random.Random(3).getstate()
    before = random.getstate()

    def hang() -> None:
        random.seed(1)
        hangs.set()
        release.wait(60)

    with ThreadPoolExecutor(1) as thread:
        hung = thread.submit(generator.run, hang, None, 60.0)
        assert hangs.wait(60)
        first, state = generator.run(random.random, seeded, 0.05)
        release.set()
        hung.result(30)
    second, _ = generator.run(random.random, state, 60.0)
    expected = random.Random(3)
    assert [first, second] == [expected.random(), expected.random()]
    assert random.getstate() == before
