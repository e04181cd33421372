"""The task: its built-in databases, databases of one's own, and whole episodes with their rewards."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from configs import made_config
from rlfactory_nl2sql.task import Nl2SqlTask

from rlfactory_core import Message, Sample, ToolCall
from rlfactory_core.clients import ServerModel
from rlfactory_core.errors import BackendError, ConfigError, UsageError
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.protocols import Request, Sampled
from rlfactory_core.reporting.metrics import group_metrics
from rlfactory_core.reporting.trajectories import StoredTrajectory
from rlfactory_core.runner import TaskBench, oracle, prepare
from rlfactory_core.runner.making import make_tasks
from rlfactory_core.settings import dump_yaml
from rlfactory_core.tasks.opening import open_tasks
from rlfactory_core.types import Group

Said = str | tuple[str, dict[str, Any]]  # a turn's text, or the tool that it calls with its arguments


class Scripted(ServerModel):
    """A model that says what it is told to, in every conversation alike."""

    def __init__(self, *turns: Said) -> None:
        self._turns = turns

    async def answer(self, request: Request) -> Sampled:
        said = self._turns[sum(message.role == "assistant" for message in request.messages)]
        if isinstance(said, str):
            return Sampled(Message("assistant", said))
        name, arguments = said
        return Sampled(Message("assistant", "", tool_calls=(ToolCall("c", name, json.dumps(arguments), arguments),)))


def play(sample: Sample, *turns: Said, **given: Any) -> Group:
    """One attempt, scored, as an engine plays it."""

    async def run() -> Group:
        config = made_config({"plugin": "nl2sql", **given})
        async with open_tasks(make_tasks(config, Registry())) as tasks:
            return await tasks.only.play(sample, Scripted(*turns), attempts=1, temperature=0.0, seed=0, session="s")

    return asyncio.run(run())


@pytest.mark.slow
def test_what_the_task_shows_of_solving_a_question_gets_the_whole_of_every_reward() -> None:
    with TaskBench("nl2sql") as bench:
        for split in ("train", "eval"):
            for each in bench.play(oracle(bench.task), bench.samples(split, 12)):
                assert each.score is not None
                assert each.score.value == pytest.approx(1.0 + 0.1 * 2)


# --- built in -------------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_questions_and_another_seed_gives_others() -> None:
    first, again, other = ([s.prompt for s in Nl2SqlTask(seed=seed).samples("eval")] for seed in (3, 3, 4))
    assert first == again
    assert len(set(first) & set(other)) < len(first) / 10


@pytest.mark.slow
def test_evaluation_is_about_databases_that_training_never_sees() -> None:
    task = Nl2SqlTask()
    by_split = {split: list(task.samples(split)) for split in ("train", "eval")}
    files = {split: {task.reference(sample).location for sample in samples} for split, samples in by_split.items()}
    assert files["train"].isdisjoint(files["eval"])
    assert len(files["eval"]) > 1
    assert all(len({sample.id for sample in samples}) == len(samples) for samples in by_split.values())
    for samples in by_split.values():
        task.check(samples)


@pytest.mark.slow
def test_an_episode_on_a_built_in_database_is_looked_up_answered_and_verified() -> None:
    sample = next(iter(Nl2SqlTask().samples("eval")))
    gold = str(sample.answer)
    group = play(sample, ("list_tables", {}), ("run_query", {"sql": gold}), f"<answer>{gold}</answer>")
    (trajectory,) = group.trajectories
    assert not trajectory.faults
    assert trajectory.score is not None
    assert trajectory.score.components["execution"] == 1.0
    assert all(result.content for turn in trajectory.turns for result in turn.results)


@pytest.mark.slow
def test_the_tiny_model_is_for_the_built_in_databases_only(shops: Path) -> None:
    assert Nl2SqlTask().tiny_model() is not None
    own = Nl2SqlTask({"db": shops})
    assert own.tiny_model() is None
    assert not list(own.samples("train"))


# --- one's own ------------------------------------------------------------------------------------------------------

QUESTION = Sample("q", "Which shops are in Oslo?", "SELECT name FROM shop WHERE city_id = 1", slice="filter")
REWARDS = {"execution": 1.0, "valid_sql": 0.1, "format": 0.1}


@pytest.mark.slow
def test_every_reward_is_seen_in_the_metrics_and_in_the_trajectory(shops: Path) -> None:
    group = play(
        QUESTION,
        ("describe", {"table": "shop"}),
        ("run_query", {"sql": "SELECT nam FROM shop"}),
        "<answer>SELECT nam FROM shop WHERE city_id = 1</answer>",
        task={"db": str(shops)},
        rewards=REWARDS,
    )
    metrics = group_metrics([group])
    parts = {name: metrics[f"{name}/filter"] for name in REWARDS}
    assert parts == {"execution": 0.0, "valid_sql": 0.0, "format": 1.0}
    assert metrics["reward"] == pytest.approx(0.1)

    stored = json.loads(json.dumps(StoredTrajectory.of(group.trajectories[0], lambda ids: "").to_dict()))
    verdicts = stored["score"]["verdicts"]
    for name in ("execution", "valid_sql"):
        assert verdicts[name]["passed"] is False
        assert "nam" in verdicts[name]["reasons"][0]
    assert verdicts["execution"]["data"]["semantics"] == "multiset"


def test_a_right_answer_earns_the_default_rewards_whole(shops: Path) -> None:
    answer = "<answer>SELECT name FROM shop WHERE 1 = city_id</answer>"
    (trajectory,) = play(QUESTION, answer, task={"db": str(shops)}).trajectories
    assert trajectory.reward == pytest.approx(1.2)


@pytest.mark.parametrize(
    ("db", "says"),
    [
        ("nowhere.sqlite", "nowhere.sqlite"),
        ("oracle://host/name", "oracle"),
        ("postgresql://me:secret@host/name", "environment variable"),
    ],
)
def test_a_database_that_cannot_be_is_refused_at_once(db: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as refused:
        prepare(None, [{"plugin": "nl2sql", "model": "m", "task": {"db": db}}])
    assert "secret" not in str(refused.value)


@pytest.mark.slow
def test_a_server_that_does_not_answer_ends_the_run_before_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("psycopg", reason="the extra postgresql is not installed")
    pytest.importorskip("sqlalchemy", reason="the extra postgresql is not installed")
    monkeypatch.setenv("SHOP_PASSWORD", "secret")
    config = made_config({"plugin": "nl2sql", "task": {"db": "postgresql://me:${SHOP_PASSWORD}@127.0.0.1:1/shops"}})
    assert "secret" not in dump_yaml(config.model_dump(mode="json"))

    async def run() -> None:
        async with open_tasks(make_tasks(config, Registry())):
            """It is refused."""

    with pytest.raises(BackendError, match="127") as refused:
        asyncio.run(run())
    assert "secret" not in str(refused.value)


def test_paths_are_found_again_from_another_folder(shops: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shops.parent)
    assert Nl2SqlTask({"db": "shops.sqlite"}).config.db == str(shops)


@pytest.mark.parametrize(
    ("option", "says"), [({"bd": "x"}, r"task\.bd.*task\.db"), ({"rows": 0}, r"task\.rows"), ({"db": 3}, r"task\.db")]
)
def test_a_wrong_option_is_refused_in_words(option: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Nl2SqlTask(option)
