"""From the options of the reward to the judge: what is refused, and what each mode is."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from fake_openai import said, serve
from rlfactory_judge.contract import JudgePlace
from rlfactory_judge.options import JudgeOptions
from rlfactory_judge.plugin import JudgeReward
from rlfactory_judge.scoring.factory import make_judge, read_options
from rlfactory_judge.scoring.judge import OutcomeJudge
from scripted_judge import ScriptedJudge, answered, attempt, make

from rlfactory_core.context import RunContext
from rlfactory_core.errors import ConfigError, UsageError
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.protocols import NeedsModelPool, PoolRequest
from rlfactory_core.runner import read, resolve
from rlfactory_core.tasks.scorers import ScorerLifecycle
from rlfactory_core.tasks.task import Task

POOL = {"placement": "pool", "model": "some/judge"}


@pytest.mark.parametrize(
    ("mode", "methods"),
    [
        ("outcome", {"score", "verify"}),
        ("process", {"score"}),
        ("ranking", {"score_group"}),
        ("pairwise", {"score_group"}),
    ],
)
def test_each_mode_is_a_reward_of_its_kind_with_a_rubric_of_its_own(mode, methods):
    judge = make_judge(mode=mode, url="http://127.0.0.1:1/v1")

    assert {name for name in ("score", "verify", "score_group") if hasattr(judge, name)} == methods
    assert isinstance(judge, ScorerLifecycle)
    assert isinstance(judge, NeedsModelPool)
    assert judge.pool is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"modle": "x"}, ["rewards.judge.modle", "rewards.judge.model"]),
        ({"mode": "duel"}, ["rewards.judge.mode", "pairwise"]),
        ({"threshold": 7}, ["rewards.judge.threshold"]),
        ({"low": 5, "high": 5}, ["rewards.judge.low", "less than high"]),
        ({"low": float("-inf")}, ["rewards.judge.low is -inf", "finite scale"]),
        ({"votes": 3, "temperature": 0}, ["votes is 3", "temperature"]),
        ({"min_kappa": 0.6}, ["min_kappa", "labels"]),
        ({"token_budget": 100}, ["token_budget", "max_tokens"]),
        ({"gpus": 2}, ["gpus", "placement: pool"]),
        ({"url": "http://me:secret@a/v1"}, ["http://a/v1", "api_key_env"]),
        ({"url": ("http://a/v1", "http://b/v1")}, ["rewards.judge.url", "A judge has one address", "load balancer"]),
        ({"placement": "pool"}, ["pool", "model"]),
        ({**POOL, "url": "http://a/v1"}, ["url", "pool"]),
        ({**POOL, "gpus": 3, "tensor_parallel": 2}, ["gpus is 3", "tensor_parallel"]),
        ({"rubric": "corectness"}, ["corectness", "correctness"]),
        ({"mode": "process", "rubric": "comparison"}, ["comparison", "process"]),
    ],
)
def test_what_does_not_fit_is_refused_in_words(options, words):
    with pytest.raises(UsageError) as caught:
        make_judge(**options)

    for word in words:
        assert word in str(caught.value)
    assert "secret" not in str(caught.value)


def test_the_server_gets_the_key_that_is_named_and_a_list_of_one_is_one(monkeypatch):
    monkeypatch.setenv("OUR_KEY", "secret")

    async def open_and_close(url):
        judge = make_judge(url=[url], api_key_env=["OUR_KEY"], cache="off")
        await judge.open(Task())
        await judge.close()

    with serve(lambda _: said('{"score": 5}')) as server:
        asyncio.run(open_and_close(server.url))
        assert set(server.authorizations) == {"Bearer secret"}
        with pytest.raises(UsageError, match="NO_KEY is not set"):
            asyncio.run(make_judge(url=server.url, api_key_env="NO_KEY").open(Task()))


def test_several_problems_are_told_at_once():
    with pytest.raises(ConfigError) as caught:
        make_judge(votes=0, retries=-1)

    assert "votes" in str(caught.value)
    assert "retries" in str(caught.value)


def test_a_judge_has_the_time_that_its_own_requests_may_take_and_more():
    judge = make_judge(request_s=10, retries=2)

    assert judge.deadline_s >= 10 * 3


def test_rankings_may_vote_without_chance_because_each_vote_sees_another_order():
    make_judge(mode="ranking", votes=4, temperature=0.0)


def test_a_pool_is_requested_and_its_servers_are_asked():
    service = ScriptedJudge(lambda *_: "1")
    judge = OutcomeJudge(JudgeOptions(**POOL, gpus=4, tensor_parallel=2), None, service)

    assert judge.pool == PoolRequest("some/judge", 4, 2)
    judge.use_pool(["http://a/v1"], "judge")
    assert service.endpoint == ("http://a/v1", "judge")


def test_the_option_judge_moves_a_judge_from_a_pool_or_another_server():
    at = JudgeReward("", "").at
    assert at({**POOL, "gpus": 2, "votes": 3}, "http://b/v1") == {"votes": 3, "url": "http://b/v1"}
    assert at({"url": "http://a/v1", "model": "m"}, "http://b/v1") == {"model": "m", "url": "http://b/v1"}


def test_opening_opens_the_service_in_the_runs_folder_and_closing_closes_it(tmp_path):
    judge, service = make(OutcomeJudge, lambda *_: "10")
    task = Task()
    task.run = RunContext(tmp_path)

    async def run():
        await judge.open(task)
        found = await judge.score(attempt(answered("red")))
        await judge.close()
        return found

    assert asyncio.run(run()).value == 1.0
    assert service.opened == [tmp_path]
    assert service.closed == 1


class Host(Task):
    """Brings a judge of its own."""

    async def serve_judge(self) -> JudgePlace:
        return JudgePlace("http://own/v1", "small")


@pytest.mark.parametrize(("named", "endpoint"), [({}, ("http://own/v1", "small")), ({"url": "http://a/v1"}, None)])
def test_a_tasks_own_judge_is_asked_where_none_is_named(named, endpoint):
    judge, service = make(OutcomeJudge, lambda *_: "1", **named)

    asyncio.run(judge.open(Host()))

    assert service.endpoint == endpoint


def test_options_are_saved_so_that_they_hold_in_another_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.jinja").write_text("{% block user %}{{ answer }} {{ form.instruction }}{% endblock %}")
    config = resolve(
        Registry(),
        read(
            None,
            [
                "plugin=judge",
                (
                    "rewards=[{name: judge, weight: 2, url: 'http://a/v1', rubric: mine.jinja, labels: l.jsonl}, "
                    "{name: judge, label: steps, mode: process, rubric: steps}]"
                ),
            ],
        ),
    ).config

    outcome, steps = config.rewards
    assert outcome.options == {
        "url": "http://a/v1",
        "rubric": str(tmp_path / "mine.jinja"),
        "labels": str(tmp_path / "l.jsonl"),
    }
    assert (outcome.key, outcome.weight) == ("judge", 2.0)
    assert (steps.key, steps.options) == ("steps", {"mode": "process", "rubric": "steps"})


def test_two_judges_of_a_run_count_their_tokens_apart():
    one, other = make_judge(url="http://a/v1"), make_judge(url="http://a/v1", mode="process")
    again = make_judge(url="http://a/v1", token_budget=5000)

    names = [judge.service.name for judge in (one, other, again)]
    assert names[0] == names[2] != names[1]


def test_the_red_team_attacks_a_judge_with_the_judges_own_injections():
    mutations = pytest.importorskip("rlfactory_devkit.redteam.mutations", reason="the red team is the devkit's")
    texts = mutations.all_injections(make_judge(url="http://127.0.0.1:1/v1").injections)
    assert len(texts) > 100
    assert all("{answer}" in text for text in texts)


@pytest.mark.parametrize(("low", "high"), [(1, 1), (2, 1), (float("nan"), 1), (0, float("inf")), (-1e308, 1e308)])
def test_a_scale_needs_two_finite_bounds_in_order(low: float, high: float) -> None:
    with pytest.raises(ConfigError, match="low"):
        read_options({"low": low, "high": high})
