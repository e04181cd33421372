"""The reward layer: scorers run at once, and fail into faults and never into zeros."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import numpy as np
import pytest
from reward_examples import SEARCH, Ranks, attempts, trajectory

from rlfactory_core.errors import ConfigError, VerifierError
from rlfactory_core.rewards import ExactMatch, Format, RewardLayer
from rlfactory_core.tasks.scorers import Scorers
from rlfactory_core.tasks.task import Task
from rlfactory_core.tools.attempt import close_all
from rlfactory_core.types import FaultKind, Group, Score, Trajectory, Verdict


class Fixed:
    def __init__(self, value: Score | BaseException) -> None:
        self.value = value

    async def score(self, _: Trajectory) -> Score:
        if isinstance(self.value, BaseException):
            raise self.value
        return self.value


class Blocks:
    """Has forgotten that scoring is async."""

    def score(self, _: Trajectory) -> Score:
        return Score(1.0)


class Waits:
    """Never answers before as many as ``parties`` of its kind wait at once."""

    def __init__(self, barrier: list[asyncio.Event], parties: int) -> None:
        self.barrier, self.parties = barrier, parties

    async def score(self, _: Trajectory) -> Score:
        mine = asyncio.Event()
        self.barrier.append(mine)
        if len(self.barrier) == self.parties:
            for event in self.barrier:
                event.set()
        await mine.wait()
        return Score(1.0)


class BlocksVerifying:
    def verify(self, trajectory: Trajectory) -> Verdict:
        return Verdict(True)


class RanksNothing:
    async def score_group(self, group: Group) -> None:
        return None


class Says:
    def __init__(self, passed: bool | None) -> None:
        self.verdict = Verdict(passed, ("because",))

    async def verify(self, _: Trajectory) -> Verdict:
        return self.verdict


def run(item: Trajectory, deadline_s: float = 5.0, **scorers: object) -> Trajectory:
    layer = RewardLayer({name: (s, 2.0) for name, s in scorers.items()}, deadline_s)  # type: ignore[misc]
    return asyncio.run(layer.score_trajectory(item))


def test_components_are_unweighted_and_the_value_weighted() -> None:
    layer = RewardLayer(
        {"exact_match": (ExactMatch(), 1.0), "format": (Format(), 0.1), "rest": (Fixed(Score(0.5)), 2.0)}
    )
    scored = asyncio.run(layer.score_trajectory(trajectory("<answer>Ann Lee</answer>")))
    assert scored.score is not None
    assert not scored.masked
    assert scored.score.value == pytest.approx(2.1)
    assert scored.reward == pytest.approx(2.1)
    assert scored.score.components == {"exact_match": 1.0, "format": 1.0, "rest": 0.5}
    assert set(scored.score.latency_s) == {"exact_match", "format", "rest"}


def test_process_rewards_are_weighted_and_added_turn_by_turn() -> None:
    item = trajectory(SEARCH, "<answer>x</answer>")
    scored = run(
        item,
        a=Fixed(Score(1.0, turn_rewards=(0.5, 0.0))),
        b=Fixed(Score(0.0, turn_rewards=(1.0, -1.0))),
        c=Fixed(Score(1.0)),
    )
    assert scored.score is not None
    assert scored.score.turn_rewards == (3.0, -2.0)
    assert scored.score.value == 4.0
    assert scored.reward == 5.0
    assert scored.score.components["a"] == 1.5


def test_verifiers_score_one_zero_or_leave_a_fault() -> None:
    scored = run(trajectory("x"), yes=Says(True), no=Says(False))
    assert scored.score is not None
    assert scored.score.components == {"yes": 1.0, "no": 0.0}
    assert not scored.masked
    assert scored.score.verdicts["no"].reasons == ("because",)
    unknown = run(trajectory("x"), maybe=Says(None))
    assert unknown.masked
    assert unknown.faults[0].message == "because"
    assert unknown.score is not None
    assert unknown.score.components == {}


class Verifies:
    def __init__(self, verdict: object) -> None:
        self.verdict = verdict

    async def verify(self, trajectory: Trajectory) -> Verdict:
        return self.verdict  # type: ignore[return-value]


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("it has no words")


@pytest.mark.parametrize(
    ("scorer", "message", "code"),
    [
        (Fixed(RuntimeError("boom")), "RuntimeError: boom", "crashed"),
        (
            Fixed(RuntimeError("x" * 1_000_000)),
            f"RuntimeError: {'x' * 2000}…",
            "crashed",
        ),  # it goes into each trajectory
        (Fixed(UnspeakableError()), "UnspeakableError: ", "crashed"),
        (Fixed(VerifierError("no sandbox")), "no sandbox", "undecided"),
        (Fixed(Score(float("nan"))), "not finite", "unusable"),
        (Fixed(Score(1.7e308)), "above 1e+30", "unusable"),  # two of them are infinite
        (Fixed(Score(0.0, turn_rewards=(float("inf"),))), "not finite", "unusable"),
        (Fixed(Score(0.0, turn_rewards=(1.0, 2.0))), "2 per-turn scores for 1 turns", "unusable"),
        (Fixed("1"), "it gave '1'; expected a number, or a Score", "unusable"),  # type: ignore[arg-type]
        (Fixed(None), "it gave None; expected a number, or a Score", "unusable"),  # type: ignore[arg-type]
        (Fixed(float("nan")), "it gave a score that is not finite", "unusable"),  # type: ignore[arg-type]
        (Fixed(Score("1")), "a Score whose value is '1'; expected a number", "unusable"),  # type: ignore[arg-type]
        (Fixed(Score(10**400)), "expected a number", "unusable"),
        (Fixed(Score(1.0, {"words": None})), "components['words'] is None; expected a number", "unusable"),  # type: ignore[dict-item]
        (Fixed(Score(1.0, ["words"])), "with ['words'] in components; expected a Mapping", "unusable"),  # type: ignore[arg-type]
        (Fixed(Score(1.0, counts={"n": "x"})), "counts['n'] is 'x'; expected a number", "unusable"),  # type: ignore[dict-item]
        (Fixed(Score(1.0, verdicts={"v": True})), "with True in verdicts; expected a Verdict", "unusable"),  # type: ignore[dict-item]
        (Fixed(Score(1.0, turn_rewards=0.5)), "with 0.5 in turn_rewards; expected a Collection", "unusable"),  # type: ignore[arg-type]
        (Fixed(asyncio.CancelledError()), "it cancelled itself", "crashed"),
        (Blocks(), "not async; write `async def score(…)`", "crashed"),
        (BlocksVerifying(), "not async; write `async def verify(…)`", "crashed"),
        (RanksNothing(), "'NoneType' object is not iterable", "crashed"),
        (Verifies(True), "it gave True; expected a Verdict", "crashed"),
        (Verifies(Verdict(("no",))), "whose passed is ('no',); expected True, False or None", "crashed"),  # type: ignore[arg-type]
        (Waits([], 2), "no score within 0.01 s", "late"),
    ],
)
def test_a_failing_scorer_masks_and_never_scores_zero(scorer: object, message: str, code: str) -> None:
    scored = run(trajectory("<answer>Ann Lee</answer>"), deadline_s=0.01, bad=scorer, good=ExactMatch())
    (fault,) = scored.faults
    assert scored.masked
    assert fault.kind is FaultKind.VERIFIER
    assert fault.source == "bad"
    assert message in fault.message
    assert fault.code == code
    assert scored.score is not None
    assert scored.score.components == {"good": 1.0}


def test_a_scorer_that_ignores_its_deadline_does_not_hold_up_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlfactory_core.utils.aio.GRACE_S", 0.01)
    rounds = 0

    class Stubborn:
        async def score(self, trajectory: Trajectory) -> Score:
            nonlocal rounds
            while rounds < 1000:
                rounds += 1
                with suppress(asyncio.CancelledError):  # as a bare `except:` around a request does
                    await asyncio.sleep(0.05)
            return Score(1.0)

    async def scored() -> Trajectory:
        try:
            layer = RewardLayer({"stubborn": (Stubborn(), 1.0)}, 0.01)  # type: ignore[dict-item]
            return await layer.score_trajectory(trajectory("x"))
        finally:
            await close_all([])  # as each run does at its end

    assert [fault.code for fault in asyncio.run(scored()).faults] == ["late"]
    assert rounds < 1000


def test_a_plain_number_is_a_score() -> None:
    scored = run(trajectory("x"), a=Fixed(0.5), b=Fixed(True))  # type: ignore[arg-type]
    assert scored.score is not None
    assert (scored.score.components, scored.faults) == ({"a": 0.5, "b": 1.0}, ())


def test_numbers_of_numpy_are_scores() -> None:
    scored = run(trajectory("x"), it=Fixed(Score(np.float32(0.5), {"part": np.int64(2)}, turn_rewards=np.array([1.0]))))
    assert scored.score is not None
    assert (scored.reward, scored.score.components) == (3.0, {"it": 1.5, "it.part": 2.0})
    assert {type(value) for value in (scored.score.value, *scored.score.components.values())} == {float}


def test_a_scorer_of_weight_0_never_masks() -> None:
    layer = RewardLayer({"bad": (Fixed(RuntimeError("boom")), 0.0), "good": (ExactMatch(), 1.0)})  # type: ignore[dict-item]
    measured = asyncio.run(layer.score_trajectory(trajectory("<answer>Ann Lee</answer>")))
    assert (measured.masked, measured.reward) == (False, 1.0)  # what is only measured never decides
    assert [fault.message for fault in measured.faults] == ["RuntimeError: boom"]


def test_a_reward_may_have_a_deadline_of_its_own() -> None:
    layer = RewardLayer({"slow": (Waits([], 2), 1.0), "format": (Format(), 1.0)}, deadlines={"slow": 0.01})
    scored = asyncio.run(layer.score_trajectory(trajectory("<answer>x</answer>")))
    assert [(fault.source, fault.message) for fault in scored.faults] == [("slow", "no score within 0.01 s")]


def test_all_scorers_of_all_attempts_run_at_once() -> None:
    barrier: list[asyncio.Event] = []
    layer = RewardLayer({name: (Waits(barrier, 6), 1.0) for name in "ab"}, 5.0)
    item = trajectory("x")
    group = asyncio.run(layer.score_group(Group(item.sample, (item, item, item))))
    assert [t.reward for t in group.trajectories] == [2.0, 2.0, 2.0]


def test_group_scorers_compare_attempts_and_fail_for_all() -> None:
    class Miscounts:
        async def score_group(self, group: Group) -> list[Score]:
            return [Score(1.0)]

    item = trajectory("<answer>Ann Lee</answer>")
    group = Group(item.sample, (item, item))
    ranked = asyncio.run(RewardLayer({"rank": (Ranks(), 1.0), "em": (ExactMatch(), 1.0)}).score_group(group))
    assert [t.reward for t in ranked.trajectories] == [1.0, 2.0]
    failed = asyncio.run(RewardLayer({"rank": (Miscounts(), 1.0)}).score_group(group))
    assert [t.masked for t in failed.trajectories] == [True, True]
    assert "1 scores for 2" in failed.trajectories[1].faults[0].message
    assert failed.trajectories[1].faults[0].code == "unusable"


def test_what_cannot_score_is_refused() -> None:
    with pytest.raises(ConfigError, match="'odd' is a int"):
        RewardLayer({"odd": (3, 1.0)})  # type: ignore[dict-item]


class Client:
    """A verifier that holds something while the task is open."""

    def __init__(self) -> None:
        self.life: list[str] = []

    async def open(self, task: Task) -> None:
        self.life.append(f"opened for {type(task).__name__}")

    async def close(self) -> None:
        self.life.append("closed")

    async def verify(self, trajectory: Trajectory) -> Verdict:
        self.life.append("asked")
        return Verdict(True)


def test_a_verifier_that_holds_something_is_opened_with_the_task_and_closed() -> None:
    client = Client()

    async def live() -> Trajectory:
        weighted = {"client": (client, 1.0), "format": (Format(), 1.0)}
        scorers = Scorers.of(weighted)
        await scorers.open(Task(), served=None)
        scored = await scorers.layer.score_trajectory(trajectory("<answer>x</answer>"))
        await scorers.close()
        return scored

    assert asyncio.run(live()).reward == 2.0
    assert client.life == ["opened for Task", "asked", "closed"]


def test_what_scorers_count_is_kept_also_where_they_fail() -> None:
    class Fails:
        async def score(self, _: Trajectory) -> Score:
            raise VerifierError("unreadable", counts={"requests": 3.0, "unreadable": 1.0})

    class FailsForAll:
        async def score_group(self, group: Group) -> list[Score]:
            raise VerifierError("down", counts={"requests": 2.0})

    class BareError(VerifierError):
        def __init__(self) -> None:
            Exception.__init__(self, "a class of somebody's own")

    layer = RewardLayer(
        {
            "good": (Fixed(Score(1.0, counts={"requests": 1.0})), 1.0),
            "bad": (Fails(), 1.0),
            "odd": (Fixed(BareError()), 1.0),
            "all": (FailsForAll(), 1.0),
        }
    )
    members = attempts(2)
    scored = asyncio.run(layer.score_group(Group(members[0].sample, tuple(members))))
    counts = [each.score.counts for each in scored.trajectories if each.score]
    own = {"good.requests": 1.0, "bad.requests": 3.0, "bad.unreadable": 1.0}
    assert counts == [own | {"all.requests": 2.0}, own]  # once for the group
    assert [fault.source for fault in scored.trajectories[1].faults] == ["bad", "odd", "all"]
