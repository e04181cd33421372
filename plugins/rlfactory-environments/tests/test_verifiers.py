"""Environments of verifiers: their rewards and faults, and runs that train on them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nltk_words
import pytest
from fake_openai import FakeServer, Reply, said, serve

from rlfactory_core.errors import ConfigError, UsageError
from rlfactory_core.runner import Policy, TaskBench, constant
from rlfactory_core.types import FaultKind, StopReason, Trajectory

pytest.importorskip("verifiers", reason="nox -s environments installs it")
for package in ("marble_v1", "textarena"):
    pytest.importorskip(package, reason="nox -s environments installs it")

PUBLISHED = {"marble-v1": {}, "textarena": {"game": "Wordle-v0"}}
TRAINED = ("made_sums", "marble-v1")  # without the word game, each of whose episodes reads dictionaries for seconds
TEXTS = (
    "I do not know.",
    '```json\n[{"kind": "block", "x": 120, "y": -800, "rot": 2}]\n```',
    "I guess [crane].",
    "Then [stone].",
)
SMALL = ["task.train_samples=6", "task.eval_samples=2"]


@pytest.fixture(scope="module", autouse=True)
def _words(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Small resources in place of those that the word games would download."""
    import nltk

    folder = tmp_path_factory.mktemp("nltk")
    nltk_words.write(folder)
    nltk.data.path.insert(0, str(folder))
    yield
    nltk.data.path.remove(str(folder))


def bench(environment: str, arguments: Mapping[str, Any] | None = None, *more: str) -> TaskBench:
    return TaskBench("verifiers", [{"task": {"environment": environment, "arguments": arguments or {}}}, *SMALL, *more])


def scripted(sample_or_messages: Any) -> str:
    """What the policy says, which depends on what it reads only."""
    texts = [message["content"] if isinstance(message, dict) else message.content for message in sample_or_messages]
    said_before = sum(
        (message["role"] if isinstance(message, dict) else message.role) == "assistant"
        for message in sample_or_messages
    )
    return TEXTS[(sum(map(len, texts[:2])) + said_before) % len(TEXTS)]


POLICY: Policy = lambda sample, messages, *_: scripted(messages)  # noqa: E731


@contextmanager
def server() -> Iterator[FakeServer]:
    """The same policy behind a server, for verifiers' own runner."""

    def answer(body: Mapping[str, Any]) -> Reply:
        reply = said(scripted(body["messages"]))
        usage = {**reply.body["usage"], "total_tokens": 110}
        whole = {"id": "chat-1", "object": "chat.completion", "created": 1, "model": "toy", "usage": usage}
        return Reply(body={**reply.body, **whole})

    with serve(answer) as running:
        yield running


@pytest.mark.parametrize(("name", "arguments"), PUBLISHED.items())
def test_verifiers_own_runner_gives_the_same_rewards(name: str, arguments: dict[str, Any]) -> None:
    from verifiers.v1.clients import EvalClientConfig, ModelContext
    from verifiers.v1.types import SamplingConfig

    with bench(name, arguments) as open_bench:
        played = open_bench.play(POLICY, open_bench.samples(limit=1))
        own = open_bench.task.environment
        tasks = [own._tasks["train"][each.sample.metadata["row"]] for each in played]

    async def run(url: str) -> list[Any]:
        context = ModelContext("toy", EvalClientConfig(base_url=url, api_key_var="NO_KEY"), SamplingConfig())
        async with own._environment.serving():
            return [await own._environment.run_episode(task, context) for task in tasks]

    with server() as running:
        episodes = asyncio.run(run(running.url))
    for trajectory, episode in zip(played, episodes, strict=True):
        assert episode.ok
        assert not trajectory.faults
        assert trajectory.reward == pytest.approx(sum(trace.reward for trace in episode.traces))


def components(trajectory: Trajectory) -> dict[str, float]:
    assert trajectory.score is not None
    prefix = "verifiers_rubric."
    given = trajectory.score.components.items()
    return {name.removeprefix(prefix): value for name, value in given if name.startswith(prefix)}


def test_every_token_of_a_conversation_is_what_was_sampled_and_stays_one_row() -> None:
    with bench("textarena", PUBLISHED["textarena"]) as open_bench:
        policy: Policy = lambda sample, messages, *_: f"I guess [{nltk_words.BASIC[len(messages) // 2]}]."  # noqa: E731
        (played,) = open_bench.play(policy, open_bench.samples(limit=1))
        chat = open_bench.chat
        assert len(played.turns) > 1
        assert len(played.rows) == 1, "nothing is encoded again"
        for turn in played.turns:
            assert turn.sampled_ids == (*chat.encode(turn.message.content), *chat.stop_token_ids)
            assert "Feedback" not in chat.decode(turn.sampled_ids)
        assert sum(played.loss_mask) == sum(len(turn.sampled_ids) for turn in played.turns)


def test_data_become_samples_and_what_is_held_out_is_not_trained() -> None:
    with bench("made_sums") as open_bench:
        train, held_out = open_bench.rows("train"), open_bench.rows("eval")
    assert [len(train), len(held_out)] == [6, 1]
    assert (train[3].messages[0].content, train[3].answer) == ("What is 3 + 3?", "6")
    assert not {each.messages for each in train} & {each.messages for each in held_out}


def test_each_reward_function_is_a_component() -> None:
    with bench("made_sums") as open_bench:
        played = open_bench.play(lambda sample, *_: str(sample.answer), open_bench.samples())
    for trajectory in played:
        found = components(trajectory)
        assert found == {"right": 1.0, "brief": 1.0 / len(str(trajectory.sample.answer))}
        assert trajectory.reward == pytest.approx(1.0 + 0.1 * found["brief"])


@pytest.mark.parametrize(("fault", "why"), [("setup", "KeyError: 'board'"), ("reward", "the judge is down")])
def test_an_environment_that_raises_masks_and_does_not_score_0(fault: str, why: str) -> None:
    with bench("made_sums", {"fault": fault}) as open_bench:
        (played,) = open_bench.play(constant("four"), open_bench.samples(limit=1))
    assert played.masked
    assert played.stop is StopReason.FAULT
    assert [each.kind for each in played.faults] == [FaultKind.INFRA]
    assert why in played.faults[0].message


def test_a_run_s_limit_of_turns_ends_a_rollout_which_is_scored_as_it_is() -> None:
    with bench("textarena", PUBLISHED["textarena"], "rollout.max_turns=2") as open_bench:
        (played,) = open_bench.play(POLICY, open_bench.samples(limit=1))
    assert (played.stop, played.masked) == (StopReason.MAX_TURNS, False)
    assert len(played.turns) == 2


def test_a_model_that_says_nothing_cannot_mask_its_rollout() -> None:
    with bench("made_sums") as open_bench:
        (played,) = open_bench.play(constant(""), open_bench.samples(limit=1))
    assert not played.masked


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "Name the environment"),
        ("no_such_environment", "cannot load the task set 'no_such_environment'"),
        ("json", "cannot load the task set 'json'"),
    ],
)
def test_what_is_no_environment_is_refused_in_words(name: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why), bench(name) as open_bench:
        open_bench.samples()


def test_several_trained_agents_are_refused() -> None:
    settings = 'task.settings={"id": "user-sim"}'
    with pytest.raises(UsageError, match="several agents"), bench("marble-v1", {}, settings) as open_bench:
        open_bench.samples()


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAINED)
def test_a_tiny_model_trains_on_it_for_three_steps(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    import blank_model

    with bench(name) as open_bench:
        texts = [message.content for sample in open_bench.rows("train") for message in sample.messages]
    blank_model.train_three_steps(tmp_path, texts, "verifiers", name, {"train_samples": 6, "eval_samples": 2})
