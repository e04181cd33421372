"""Servers that are full, slow, hung, killed and restarted: no episode is scored for it."""

from __future__ import annotations

import asyncio
import threading

import pytest
from openenv_server import OpenEnvServer, openenv_server
from rlfactory_devkit import TaskBench, constant
from rlfactory_devkit.checks import run_checks
from rlfactory_devkit.checks.context import CheckContext
from rlfactory_environments.openenv.session import open_session

from rlfactory_core.errors import BackendError
from rlfactory_core.types import FaultKind, StopReason, Trajectory

FAST = ("task.request_s=0.5", "task.connect_s=0.5", "task.queue_s=0.5")
PATIENT = ("task.request_s=30", "task.connect_s=30", "task.queue_s=30")


def bench(url: str, *options: str) -> TaskBench:
    return TaskBench("openenv", [f"task.url={url}", *options])


def lost(played: Trajectory) -> str:
    """The message of the fault that masks an episode, which has no reward."""
    (fault,) = played.faults
    assert (fault.kind, played.stop) == (FaultKind.INFRA, StopReason.FAULT)
    assert played.masked
    return fault.message


def test_a_server_with_one_session_plays_one_episode_after_the_other(caplog: pytest.LogCaptureFixture) -> None:
    with openenv_server(most=1) as server, bench(server.url, *PATIENT) as opened:
        played = opened.play(constant("1"), opened.samples(limit=8))
        assert (server.counts.opened, server.counts.most_at_once) == (8, 1)
    assert not any(each.masked for each in played)
    said = [record.getMessage() for record in caplog.records if "is full" in record.getMessage()]
    assert len(said) == 1
    assert "1/1 sessions active" in said[0]
    assert "wait for one of its sessions to end" in said[0]


def test_the_check_of_isolation_passes_a_server_with_one_session() -> None:
    with openenv_server(most=1) as server:
        options = [f"task.url={server.url}", "task.samples=4", "task.eval_samples=2", *PATIENT]
        with CheckContext("openenv", options) as context:
            (result,) = run_checks(context, ["isolation"])
    assert result.passed, result.evidence


def test_the_user_can_limit_sessions() -> None:
    with openenv_server() as server, bench(server.url, "task.sessions=2") as opened:
        opened.play(constant("1"), opened.samples(limit=6))
        assert server.counts.most_at_once <= 2


def test_a_server_that_is_full_because_of_others_is_waited_for() -> None:
    with openenv_server(most=1) as server, bench(server.url, *PATIENT) as opened:

        async def play() -> Trajectory:
            others = await open_session(server.url, deadline_s=30, connect_s=30)
            await others.reset({})
            playing = asyncio.ensure_future(opened.episode(constant("1"), opened.samples()[0]))
            assert await asyncio.to_thread(server.refused.wait, 30)
            await others.close()
            return await playing

        assert not opened.run(play()).masked


def test_a_server_that_stays_full_masks_the_episode() -> None:
    with openenv_server(most=0) as server, bench(server.url, *FAST) as opened:
        (played,) = opened.play(constant("1"), opened.samples(limit=1))
    assert "is full" in lost(played)


def test_a_request_that_is_not_answered_masks_the_episode_and_leaves_no_session() -> None:
    with openenv_server() as server, bench(server.url, *FAST) as opened:
        (played,) = opened.play(constant("hang"), opened.samples(limit=1))
        assert "did not answer to 'step' within 0.5 s" in lost(played)
        (again,) = opened.play(constant("1"), opened.samples(limit=1))
        assert not again.masked


def test_a_slow_step_is_waited_for_and_scored_while_others_play() -> None:
    with openenv_server() as server, bench(server.url, *PATIENT) as opened:

        async def play() -> tuple[Trajectory, Trajectory]:
            slow = asyncio.ensure_future(opened.episode(constant("slow"), opened.samples()[0]))
            assert await asyncio.to_thread(server.slow.wait, 30)
            other = await opened.episode(constant("1"), opened.samples()[0])
            assert not slow.done()
            server.released.set()
            return await slow, other

        slow, other = opened.run(play())
    assert (slow.masked, slow.reward) == (False, 1.0)
    assert not other.masked


def test_a_connection_that_breaks_masks_the_episode() -> None:
    with openenv_server() as server, bench(server.url, *FAST) as opened:
        (played,) = opened.play(constant("die"), opened.samples(limit=1))
        assert "ended the connection at 'step'" in lost(played)


def test_a_reward_that_is_no_number_masks_the_episode() -> None:
    with openenv_server() as server, bench(server.url) as opened:
        (played,) = opened.play(constant("nan"), opened.samples(limit=1))
    assert "expected observation and a finite reward" in lost(played)


def test_an_environment_that_cannot_begin_masks_the_episode_at_once() -> None:
    with openenv_server() as server, bench(server.url, *PATIENT, "task.reset.broken=true") as opened:
        (played,) = opened.play(constant("1"), opened.samples(limit=1))
        assert server.counts.opened == 1
    assert "could not reset its environment: no such level" in lost(played)
    assert played.turns == ()


def test_an_episode_waits_for_a_server_that_is_restarted() -> None:
    server = OpenEnvServer()
    server.start()
    with bench(server.url, *PATIENT) as opened:
        server.stop()
        later = threading.Timer(0.3, server.start)
        later.start()
        (played,) = opened.play(constant("1"), opened.samples(limit=1))
        later.join()
        server.stop()
    assert not played.masked


def test_a_server_that_is_gone_masks_the_episode() -> None:
    with openenv_server() as server, bench(server.url, *FAST) as opened:
        server.stop()
        (played,) = opened.play(constant("1"), opened.samples(limit=1))
    assert "cannot be reached" in lost(played)


def test_episodes_are_shared_among_servers_and_move_away_from_one_that_is_gone() -> None:
    with openenv_server() as one, openenv_server() as other, bench(f"{one.url},{other.url}", *PATIENT) as opened:
        opened.play(constant("5"), opened.samples(limit=8))
        assert (one.counts.opened, other.counts.opened) == (4, 4)
        one.stop()
        played = opened.play(constant("1"), opened.samples(limit=8))
        assert not any(each.masked for each in played)
        assert other.counts.opened == 12


def test_a_run_begins_without_one_of_its_servers_but_not_without_all() -> None:
    with openenv_server() as server:
        gone = OpenEnvServer()
        gone.start()
        gone.stop()
        with bench(f"{gone.url},{server.url}", *PATIENT) as opened:
            assert not any(each.masked for each in opened.play(constant("1"), opened.samples(limit=4)))
        with pytest.raises(BackendError, match="Start the server, and give its address"):
            bench(gone.url, *FAST).__enter__()


def test_a_cancelled_episode_gives_its_session_back() -> None:
    with openenv_server(most=1) as server, bench(server.url, *PATIENT) as opened:

        async def cancel() -> None:
            playing = asyncio.ensure_future(opened.episode(constant("hang"), opened.samples()[0]))
            assert await asyncio.to_thread(server.began.wait, 30)
            playing.cancel()
            await asyncio.wait({playing})

        opened.run(cancel())
        (played,) = opened.play(constant("1"), opened.samples(limit=1))
        assert not played.masked
