"""Environments of verifiers, of both interfaces: their rewards, tools and faults, and runs that train on them."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nltk_words
import pytest
from fake_openai import FakeServer, Reply, said, serve
from rlfactory_devkit.bench import TaskBench
from rlfactory_devkit.policies import Policy, constant, turn_ids

from rlfactory_core import Message, Sample
from rlfactory_core.clients import ServerModel
from rlfactory_core.errors import ConfigError, UsageError
from rlfactory_core.protocols import Sampled
from rlfactory_core.tiny import call
from rlfactory_core.types import FaultKind, StopReason, Trajectory

vf = pytest.importorskip("verifiers", reason="nox -s environments installs it")
for package in ("reasoning_gym", "sophistry_bench_sprint", "stardata", "marble_v1", "textarena"):
    pytest.importorskip(package, reason="nox -s environments installs it")

REASONING = "verifiers.legacy.envs.integrations.reasoninggym_env:ReasoningGymEnv"
from rlfactory_environments.verifiers.task import VerifiersTask  # noqa: E402

FIRST = {  # published environments of the first interface, with options
    "sophistry_bench_sprint": {"n_items": 8, "passage_chars": 300},
    "stardata.envs.constraint_gym": {},
    REASONING: {"gym": "chain_sum", "num_train_examples": 16, "num_eval_examples": 8},
}
SECOND = {"marble-v1": {}, "textarena": {"game": "Wordle-v0"}}  # and of the second
TRAINED = {  # without the word game, each of whose episodes reads dictionaries for seconds
    **FIRST,
    "stardata.envs.constraint_gym:load_lipogram_env": {"topics_per_letter": 2},
    "marble-v1": {},
}
TEXTS = (
    "I do not know.",
    "<claim>It is so.</claim>\n<cite>he said</cite>",
    "<answer>12</answer>",
    "a rose is a rose\nand so are all of those\n",
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


@pytest.mark.parametrize(("name", "arguments"), FIRST.items())
def test_the_first_interfaces_own_runner_gives_the_same_rewards(name: str, arguments: dict[str, Any]) -> None:
    from openai import AsyncOpenAI
    from verifiers.clients import OpenAIChatSampledsClient

    with bench(name, arguments) as open_bench:
        played = open_bench.play(POLICY, open_bench.samples())
        environment = open_bench.task.environment._environment
        rows = environment.get_dataset().to_list()

    async def run(url: str) -> list[Any]:
        async with AsyncOpenAI(base_url=url, api_key="none") as client:
            own = OpenAIChatSampledsClient(client)
            wanted = [rows[each.sample.metadata["row"]] for each in played]
            return [await environment.run_rollout(row, own, "toy", {}) for row in wanted]

    with server() as running:
        outputs = asyncio.run(run(running.url))
    for trajectory, output in zip(played, outputs, strict=True):
        assert not trajectory.faults
        assert trajectory.reward == pytest.approx(output["reward"])
        assert components(trajectory) == pytest.approx(dict(output["metrics"]))
    assert any(components(each) for each in played)


@pytest.mark.parametrize(("name", "arguments"), SECOND.items())
def test_the_second_interfaces_own_runner_gives_the_same_rewards(name: str, arguments: dict[str, Any]) -> None:
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
    with bench("textarena", SECOND["textarena"]) as open_bench:
        policy: Policy = lambda sample, messages, *_: f"I guess [{nltk_words.BASIC[len(messages) // 2]}]."  # noqa: E731
        (played,) = open_bench.play(policy, open_bench.samples(limit=1))
        chat = open_bench.chat
        assert len(played.turns) > 1
        assert len(played.rows) == 1, "nothing is encoded again"
        for turn in played.turns:
            assert turn.sampled_ids == turn_ids(chat, turn.message.content)
            assert "Feedback" not in chat.decode(turn.sampled_ids)
        assert sum(played.loss_mask) == sum(len(turn.sampled_ids) for turn in played.turns)


def test_data_become_samples_and_what_is_held_out_is_not_trained() -> None:
    with bench(REASONING, FIRST[REASONING]) as open_bench:
        train, held_out = open_bench.rows("train"), open_bench.rows("eval")
    assert [len(train), len(held_out)] == [6, 2]
    assert train[0].messages[0].role == "system"
    assert (train[3].answer, train[3].metadata["answer"]) == (None, "3"), "it is no answer, but the row's number"
    assert not {each.messages for each in train} & {each.messages for each in held_out}
    with bench("marble-v1", {}) as open_bench:
        train, held_out = open_bench.rows("train"), open_bench.rows("eval")
    assert not {each.messages for each in train} & {each.messages for each in held_out}


def test_the_tools_of_an_environment_are_offered_and_run_there() -> None:
    def policy(sample: Sample, messages: Sequence[Message], *_: object) -> Message | str:
        if messages[-1].role == "tool":
            return messages[-1].content
        number = int(messages[-1].content.split()[2])
        return Message("assistant", "", tool_calls=(call("add", a=number, b=number),))

    with bench("made_environments:tools") as open_bench:
        played = open_bench.play(policy, open_bench.samples())
    for trajectory in played:
        assert [tool.name for tool in trajectory.tools] == ["add"]
        assert len(trajectory.turns) == 2
        assert len(trajectory.rows) == 1
        found = components(trajectory)
        assert (found["right"], found["add_calls"]) == (1.0, 1.0)
        assert trajectory.reward == pytest.approx(1.0 + 0.1 * found["brief"])


def test_the_state_of_tools_belongs_to_one_rollout() -> None:
    def policy(sample: Sample, messages: Sequence[Message], *_: object) -> Message | str:
        if sum(message.role == "tool" for message in messages) == 2:
            return "done"
        return Message("assistant", "", tool_calls=(call("count", step=sample.metadata["row"] + 1),))

    with bench("made_environments:stateful") as open_bench:
        played = open_bench.play(policy, open_bench.samples())
    assert [each.reward for each in played] == [2.0 * (each.sample.metadata["row"] + 1) for each in played]


def test_a_group_is_scored_together() -> None:
    class Drawn(ServerModel):
        """Says another text in each rollout."""

        def __init__(self) -> None:
            self.left = ["a long text", "0", "another text"]

        async def answer(self, request: object) -> Sampled:
            return Sampled(Message("assistant", self.left.pop()))

    with bench("made_environments:grouped") as open_bench:
        assert list(open_bench.task.rewards) == ["verifiers_group_rubric"]
        sample = open_bench.samples(limit=1)[0]
        playing = open_bench.runtime.play(
            sample,
            Drawn(),
            attempts=3,
            temperature=1.0,
            seed=0,
            session="group",
        )
        group = open_bench.run(playing)
    rewards = {each.turns[0].message.content: each.reward for each in group.trajectories}
    assert rewards == {"0": 1.5, "a long text": 0.0, "another text": 0.0}


def test_what_an_environment_asks_by_itself_is_recorded_as_rows() -> None:
    with bench("made_environments:own_rollout") as open_bench:
        (played,) = open_bench.play(constant("four"), open_bench.samples(limit=1))
    assert len(played.rows) == 2
    assert played.reward == 1.0


def test_an_environment_that_raises_masks() -> None:
    with bench("made_environments:failing") as open_bench:
        (played,) = open_bench.play(constant("four"), open_bench.samples(limit=1))
    assert played.masked
    assert played.stop is StopReason.FAULT
    assert [fault.kind for fault in played.faults] == [FaultKind.INFRA]
    assert "KeyError: 'board'" in played.faults[0].message


def test_a_reward_function_whose_service_is_down_masks_and_does_not_score_0() -> None:
    with bench("made_environments:judge_down") as open_bench:
        (played,) = open_bench.play(constant("0"), open_bench.samples(limit=1))
    assert played.masked
    assert "the judge is down" in played.faults[0].message


def test_a_reward_function_that_a_text_breaks_gives_0_as_in_verifiers_and_is_counted() -> None:
    with bench("made_environments:careless") as open_bench:
        (played,) = open_bench.play(constant("four"), open_bench.samples(limit=1))
    assert not played.faults
    assert components(played)["clumsy"] == 0.0
    assert played.score is not None
    assert played.score.counts["verifiers_rubric.reward_errors"] == 1.0


def test_a_run_s_limit_of_turns_ends_a_rollout_which_is_scored_as_it_is() -> None:
    policy: Policy = lambda *_: Message("assistant", "", tool_calls=(call("add", a=1, b=1),))  # noqa: E731
    with bench("made_environments:tools", None, "rollout.max_turns=2") as open_bench:
        (played,) = open_bench.play(policy, open_bench.samples(limit=1))
    assert (played.stop, played.masked) == (StopReason.MAX_TURNS, False)
    assert len(played.turns) == 2
    assert components(played)["right"] == 0.0


def test_a_model_that_says_nothing_cannot_mask_its_rollout() -> None:
    with bench("made_environments:tools") as open_bench:
        (played,) = open_bench.play(constant(""), open_bench.samples(limit=1))
    assert not played.masked


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "Name the environment"),
        ("no_such_environment", "cannot load the environment 'no_such_environment'"),
        ("made_environments:data", "expected an Environment"),
        ("sophistry_bench_sprint:load_environments", "has no attribute"),
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
@pytest.mark.parametrize(("name", "arguments"), TRAINED.items())
def test_a_tiny_model_trains_on_it_for_three_steps(name: str, arguments: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("torch")
    import blank_model

    with bench(name, arguments) as open_bench:
        texts = [message.content for sample in open_bench.rows("train") for message in sample.messages]
    task = {"arguments": arguments, "train_samples": 6, "eval_samples": 2}
    blank_model.train_three_steps(tmp_path, texts, "verifiers", name, task)


def test_an_environment_does_not_take_over_ctrl_c_and_can_be_made_in_any_thread() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with ThreadPoolExecutor(1) as thread:
        task = thread.submit(VerifiersTask, {"environment": "made_environments:tools"}).result()
        assert thread.submit(lambda: list(task.samples("train"))).result()
    _ = VerifiersTask({"environment": "made_environments:tools"}).environment
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
