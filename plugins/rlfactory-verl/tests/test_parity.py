"""The same samples with the same sampled ids are the same to both engines: ids, masks, rewards, advantages.

No Ray and no vLLM: verl's side is its own agent loop, tensors and advantage functions around our rollout.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rlfactory_devkit import ScriptedSampler, ToyChatFormat

from rlfactory_core.algo.advantages import WholeAttempts
from rlfactory_core.algo.batch import build_batches
from rlfactory_core.algo.prompts import UniformPrompts
from rlfactory_core.config import RunConfig
from rlfactory_core.engines.base import EngineRun
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.reporting.trajectories import StoredTrajectory
from rlfactory_core.runner.resolved import engine_run
from rlfactory_core.settings import validate_section
from rlfactory_core.tasks.opening import open_tasks
from rlfactory_core.types import FaultKind, Group, SampledTokens, SamplingParams, StopReason, TrainSequence, Trajectory
from rlfactory_core.utils.seeds import derive_seed

pytest.importorskip("verl", reason="the other engine")
import numpy as np
import torch
from omegaconf import OmegaConf
from parity_script import script
from parity_task import CASES, MAX_TOKENS, MAX_TURN_TOKENS
from rlfactory_verl import replay
from rlfactory_verl.agent_loop import RolloutAgentLoop
from rlfactory_verl.constraints import MISSING_INPUTS
from rlfactory_verl.dataset import TRAIN, TaskDataset
from rlfactory_verl.events import StopFile
from rlfactory_verl.output import TrajectoryOutput, token_rewards
from rlfactory_verl.rollout_request import FIELD
from rlfactory_verl.run_payload import Payload
from rlfactory_verl.trainer import ALONE
from transfer_queue import KVBatchMeta
from verl.experimental.agent_loop.agent_loop import DictConfigWrap
from verl.protocol import DataProto
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories
from verl.workers.rollout.replica import TokenOutput

pytestmark = pytest.mark.slow

PLUGIN = str(Path(__file__).parents[3] / "tests" / "support" / "parity_task.py")
ATTEMPTS = 8
STEP = 3  # in the middle of a run; every case comes once in each step
TOLERANCE = 1e-5


class Tokenizer:
    """The methods that verl's base class of agent loops calls; the toy format needs none."""

    def encode(self, text: str, **options: Any) -> list[int]:
        return list(text.encode())


class Model:
    """Samples its script; its log-probs depend on token and position."""

    def __init__(self, cases: Mapping[str, str]) -> None:
        def text(session: str, turn: int) -> str:
            prompt, _, attempt = session.rpartition("/")
            return script(cases[prompt], int(attempt))[turn]

        self._scripted = ScriptedSampler(text, ToyChatFormat())

    async def sample(self, ids: Sequence[int], params: SamplingParams, *, session: str) -> SampledTokens:
        said = await self._scripted.sample(ids, params, session=session)
        places = range(len(ids), len(ids) + len(said.token_ids))
        values = tuple(
            -((token * 31 + place * 17) % 4096) / 512 for token, place in zip(said.token_ids, places, strict=True)
        )
        return replace(said, logprobs=values, version=STEP - 1)

    async def release(self, session: str) -> None:
        await self._scripted.release(session)

    async def generate(self, *, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any]) -> TokenOutput:
        """As verl's client of its servers."""
        stops = tuple(sampling_params["stop_token_ids"])
        params = SamplingParams(sampling_params["max_tokens"], sampling_params["temperature"], stop_token_ids=stops)
        said = await self.sample(prompt_ids, params, session=request_id)
        return TokenOutput(
            token_ids=list(said.token_ids),
            log_probs=list(said.logprobs),
            stop_reason="completed",
            extra_fields={"min_global_steps": STEP - 1, "max_global_steps": STEP - 1},
        )


@dataclass(frozen=True)
class Played:
    """One step, by both engines: the cases' groups, and verl's outputs in the same order."""

    local: dict[str, Group]
    verl: dict[str, list[TrajectoryOutput]]

    def pairs(self) -> list[tuple[Trajectory, TrajectoryOutput]]:
        """Attempt by attempt, but for the case that the local engine does not survive."""
        return [
            pair for case, group in self.local.items() for pair in zip(group.trajectories, self.verl[case], strict=True)
        ]


@cache
def played() -> Played:
    config = validate_section(
        RunConfig,
        {
            "plugin": PLUGIN,
            "engine": "verl",
            "seed": 11,
            "chat": {"format": "toy"},
            "rollout": {
                "max_tokens": MAX_TOKENS,
                "max_turn_tokens": MAX_TURN_TOKENS,
                "temperature": 0.8,
            },
            "train": {"prompts_per_step": len(CASES), "group_size": ATTEMPTS},
        },
    )
    registry = Registry()
    run = engine_run(config, registry, Path("run"))
    samples = run.tasks.samples("train")
    order = UniformPrompts(samples, len(CASES), config.seed).step(STEP)
    cases = {f"{STEP}/{index}": samples[at].id for index, at in enumerate(order)}
    payload = Payload.make(config, registry.fingerprints(), Path("run"))

    async def both() -> Played:
        return Played(await play_locally(run, Model(cases), order), await play_in_verl(payload, Model(cases), cases))

    return asyncio.run(both())


async def play_locally(run: EngineRun, model: Model, order: Sequence[int]) -> dict[str, Group]:
    """As the local engine's trainer; an environment that raises ends its run, so that case is left to verl."""
    samples, config = run.tasks.samples("train"), run.config
    async with open_tasks(run.tasks) as opened:
        opened.use_chat(run.make_chat(None))
        groups, asked = [], opened.only.model(model)
        for index, at in enumerate(order):
            if samples[at].id == "raises":
                continue
            seed = derive_seed(config.seed, "train", STEP, index)
            session, temperature = f"{STEP}/{index}", config.rollout.temperature
            groups.append(
                await opened.only.play(
                    samples[at],
                    asked,
                    attempts=ATTEMPTS,
                    temperature=temperature,
                    seed=seed,
                    session=session,
                )
            )
    return {group.sample.id: group for group in groups}


async def play_in_verl(payload: Payload, model: Model, cases: Mapping[str, str]) -> dict[str, list[TrajectoryOutput]]:
    """As verl's rollout worker, from its data set's rows."""
    data = {FIELD: payload.to_text()}
    config = OmegaConf.create({"actor_rollout_ref": {"rollout": {}}, "data": data})
    tokenizer = Tokenizer()
    dataset = TaskDataset(TRAIN, tokenizer, None, config.data)
    rows = [dataset[(STEP - 1) * len(CASES) + index] for index in range(len(CASES))]

    async def play(row: dict[str, Any], attempt: int) -> TrajectoryOutput:
        loop = RolloutAgentLoop(
            DictConfigWrap(config), model, tokenizer, None, TaskDataset, DictConfigWrap(config.data)
        )
        (output,) = await loop.run({"temperature": 9.0}, **row, session_id=attempt, global_steps=STEP)
        return output

    outputs = await asyncio.gather(*(play(row, attempt) for row in rows for attempt in range(ATTEMPTS)))
    return {case: list(outputs[index * ATTEMPTS : (index + 1) * ATTEMPTS]) for index, case in enumerate(cases.values())}


def stored(output: TrajectoryOutput) -> Trajectory:
    """What the trainer gets besides the tensors."""
    return StoredTrajectory.from_dict(json.loads(output.extra_fields[FIELD])).trajectory


LOCAL = [case for case in CASES if case != "raises"]


@pytest.mark.parametrize("case", LOCAL)
def test_ids_masks_and_logprobs_are_the_same(case: str) -> None:
    for mine, output in zip(played().local[case].trajectories, played().verl[case], strict=True):
        fields = output.as_dict()
        if not mine.turns:
            assert fields["response_mask"].tolist() == [0]
            assert fields["prompts"].tolist() == list(ToyChatFormat().initial_ids(mine.sample.messages, mine.tools))
            continue
        start = len(mine.turns[0].context_ids)
        assert [*fields["prompts"].tolist(), *fields["responses"].tolist()] == list(mine.ids)
        assert len(fields["prompts"]) == start
        assert fields["response_mask"].tolist() == list(mine.loss_mask[start:])
        assert sum(fields["response_mask"].tolist()) == mine.num_sampled
        assert fields["rollout_log_probs"].tolist() == list(mine.logprobs[start:])


@pytest.mark.parametrize("case", LOCAL)
def test_trajectories_are_the_same_but_for_the_clock(case: str) -> None:
    """Stop reasons, faults, messages, tool results, scores: what reports and metrics are made from."""
    for mine, output in zip(played().local[case].trajectories, played().verl[case], strict=True):
        assert timeless(stored(output)) == timeless(mine)


def timeless(trajectory: Trajectory) -> dict[str, Any]:
    def without(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: without(item) for key, item in value.items() if not key.endswith(("_s", "seconds"))}
        return [without(item) for item in value] if isinstance(value, list) else value

    found = StoredTrajectory.of(trajectory, ToyChatFormat().decode).to_dict()
    return dict(without(json.loads(json.dumps(found))))


def test_every_case_does_what_its_name_says() -> None:
    """Otherwise the other tests would show nothing."""
    local = played().local
    masked = {case: [t.attempt for t in group.trajectories if t.masked] for case, group in local.items()}
    assert masked == {
        "plain": [], "second": [], "third": [], "equal": [], "alike": [], "cut": [],
        "infra": [1, 4], "verifier": [0, 7], "single": [*range(1, 8)], "none": [*range(8)], "full": [*range(8)],
    }  # fmt: skip
    assert len({round(t.reward, 6) for t in local["plain"].trajectories}) == ATTEMPTS
    assert [t.reward for t in local["equal"].trajectories] == [1.2] * ATTEMPTS
    assert [t.reward for t in local["alike"].trajectories] == pytest.approx([1.1] * ATTEMPTS)
    assert {t.stop for t in local["full"].trajectories} == {StopReason.LENGTH}
    assert not any(t.turns for t in local["full"].trajectories)
    assert [t.turns[-1].finish for t in local["cut"].trajectories] == ["stop", "length"] * 4
    assert [len(t.turns) for t in local["plain"].trajectories] == [3] * ATTEMPTS
    assert any(t.score and any(t.score.turn_rewards) for t in local["plain"].trajectories)
    assert any(turn.reward for t in local["plain"].trajectories for turn in t.turns)


def test_rewards_sit_on_their_turns_last_tokens_and_sum_up() -> None:
    for mine, output in played().pairs():
        rewards = token_rewards(mine)
        assert sum(reward.value for reward in rewards) == pytest.approx(mine.reward, abs=1e-12)
        fields = output.as_dict()
        scores, mask = fields["rm_scores"], fields["response_mask"]
        assert scores.sum().item() == pytest.approx(mine.reward, abs=TOLERANCE)
        assert output.reward_score == mine.reward
        if not mine.turns:
            continue
        ends, end = [], 0
        for number, turn in enumerate(mine.turns):
            end += (len(turn.context_ids) if number else 0) + len(turn.sampled_ids)
            ends.append(end - 1)
        assert {place for place, value in enumerate(scores.tolist()) if value} <= set(ends)
        assert all(mask[place] for place in ends)


def test_an_environment_that_raises_spoils_its_own_trajectory_alone() -> None:
    trajectories = [stored(output) for output in played().verl["raises"]]
    assert [t.attempt for t in trajectories if t.masked] == [2]
    (fault,) = trajectories[2].faults
    assert (fault.kind, fault.message) == (FaultKind.INFRA, "RuntimeError: the environment has a bug")
    fields = played().verl["raises"][2].as_dict()
    assert (fields["response_mask"].tolist(), fields["rm_scores"].tolist()) == ([0], [0.0])


def test_versions_are_those_of_the_servers() -> None:
    for mine, output in played().pairs():
        assert [turn.version for turn in mine.turns] == [STEP - 1] * len(mine.turns)
        expected = STEP - 1 if mine.turns else STEP
        assert output.extra_fields["min_global_steps"] == output.extra_fields["max_global_steps"] == expected


@dataclass(frozen=True)
class Batch:
    """verl's tensors of the rows that `RecordingReplayBuffer` lets through, padded on the right."""

    keys: list[str]
    index: Any
    rewards: torch.Tensor
    mask: torch.Tensor
    lengths: list[int]


def batch(monkeypatch: pytest.MonkeyPatch, needed: int) -> Batch:
    outputs = {f"{case}_{attempt}_0": output for case in LOCAL for attempt, output in enumerate(played().verl[case])}
    queue = SimpleNamespace(
        kv_batch_get=lambda keys, **_: {"extra_fields": [outputs[key].extra_fields for key in keys]},
        kv_clear=lambda **_: None,
    )
    monkeypatch.setattr(replay, "tq", queue)
    meta = KVBatchMeta(list(outputs), [{}] * len(outputs), "train")
    inner = SimpleNamespace(sample=lambda **_: (meta, {}))
    recorder, stop = SimpleNamespace(step_rows=lambda rows: None), StopFile(Path("nobody asked"))
    made = replay.RecordingReplayBuffer(inner, recorder, stop, group_size_needed=needed, max_spoilt=1)
    keys = made.sample(global_steps=STEP, partition_id="train", batch_size=len(LOCAL))[0].keys
    fields = [outputs[key].as_dict() for key in keys]
    pad = torch.nn.utils.rnn.pad_sequence
    return Batch(
        keys=keys,
        index=np.array([key.rsplit("_", 2)[0] for key in keys], dtype=object),
        rewards=pad([f["rm_scores"] for f in fields], batch_first=True),
        mask=pad([f["response_mask"] for f in fields], batch_first=True),
        lengths=[len(f["responses"]) for f in fields],
    )


def local_sequences(advantage: str) -> dict[tuple[str, int], TrainSequence]:
    """What the local engine's update gets, by case and attempt."""
    found: dict[tuple[str, int], TrainSequence] = {}
    for case, group in played().local.items():
        batches = build_batches([group], advantage=WholeAttempts(advantage), updates=1, seed=0)
        sequences = [sequence for made in batches for sequence in made.sequences]
        for sequence in sequences:
            (attempt,) = (
                t.attempt for t in group.trajectories if (t.ids, t.logprobs) == (sequence.ids, sequence.logprobs)
            )
            found[case, attempt] = sequence
    return found


@pytest.mark.parametrize("advantage", ["grpo", "dr_grpo", "rloo"])
def test_advantages_are_the_same(advantage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = batch(monkeypatch, needed=2)
    if advantage == "rloo":
        found, _ = core_algos.compute_rloo_outcome_advantage(made.rewards, made.mask, made.index)
    else:
        found, _ = core_algos.compute_grpo_outcome_advantage(
            made.rewards, made.mask, made.index, norm_adv_by_std_in_grpo=advantage == "grpo"
        )
    mine = local_sequences(advantage)
    in_verl = {(key.rsplit("_", 2)[0], int(key.split("_")[-2])): row for row, key in enumerate(made.keys)}
    assert set(mine) <= set(in_verl)
    for place, row in in_verl.items():
        values = found[row, : made.lengths[row]].tolist()
        if place in mine:
            sequence = mine[place]
            context = len(sequence.ids) - made.lengths[row]
            assert values == pytest.approx(list(sequence.advantages[context:]), abs=TOLERANCE), place
            assert not any(sequence.advantages[:context])
        else:
            assert values == pytest.approx([0.0] * len(values), abs=TOLERANCE), place
    assert {case for case, _ in mine} == {"plain", "second", "third", "infra", "verifier", "cut"}
    assert {case for case, _ in in_verl} == {"plain", "second", "third", "infra", "verifier", "cut", "equal", "alike"}
    assert {("infra", 1), ("infra", 4), ("verifier", 0), ("verifier", 7)} & set(in_verl) == set()


@pytest.mark.parametrize("name", sorted(set(map(str, core_algos.ADV_ESTIMATOR_REGISTRY)) - set(MISSING_INPUTS)))
def test_every_estimator_of_verls_takes_our_tensors(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With nothing but what verl's V1 trainer has at that point."""
    made = batch(monkeypatch, needed=1 if name in ALONE else 2)
    noise = torch.randn(made.rewards.shape, generator=torch.Generator().manual_seed(0))
    tensors = {
        "response_mask": made.mask,
        "token_level_rewards": made.rewards,
        "old_log_probs": -noise.abs(),
        "rollout_log_probs": -noise.abs(),
        "values": noise,
    }
    data = DataProto.from_dict(tensors=tensors, non_tensors={"uid": made.index})
    config = OmegaConf.create({"gamma": 1.0, "lam": 1.0, "norm_adv_by_std_in_grpo": True})
    done = compute_advantage_for_multi_trajectories(data, made.keys, name, num_repeat=ATTEMPTS, config=config)
    advantages = done.batch["advantages"]
    assert torch.isfinite(advantages).all()
    assert advantages[made.mask.bool()].any()
    assert not advantages[~made.mask.bool()].any() or name == "gae"  # the loss masks those anyway


def test_a_critics_returns_are_what_is_still_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """With values of zero and no discount: on each turn's tokens the rewards of that turn and of all after it."""
    made = batch(monkeypatch, needed=1)
    zeros = torch.zeros_like(made.rewards)
    _, returns = core_algos.compute_gae_advantage_return(made.rewards, zeros, made.mask, gamma=1.0, lam=1.0)
    assert "single_0_0" not in made.keys  # most of its group is masked
    for row, key in enumerate(made.keys):
        case, attempt, _ = key.split("_")
        mine = played().local[case].trajectories[int(attempt)]
        assert mine.score is not None
        end = 0
        turn_rewards = [turn.reward + mine.score.turn_rewards[number] for number, turn in enumerate(mine.turns)]
        for number, turn in enumerate(mine.turns):
            start = end + (len(turn.context_ids) if number else 0)
            end = start + len(turn.sampled_ids)
            left = sum(turn_rewards[number:]) + mine.score.value
            assert returns[row, start:end].tolist() == pytest.approx([left] * (end - start), abs=TOLERANCE), key
