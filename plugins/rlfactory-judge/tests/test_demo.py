"""The demo's world, what policy and judge are shown before they begin, and the question in which the judge is asked."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rlfactory_devkit.bench import TaskBench
from rlfactory_devkit.policies import oracle
from rlfactory_judge.contract import JudgeHost, JudgePlace
from rlfactory_judge.demo import judge_model, policy
from rlfactory_judge.demo import task as task_module
from rlfactory_judge.demo.judge_model import HIGH, LOW, RUBRIC, Examiner, demo_labels, verdict
from rlfactory_judge.demo.policy import Carelessness, Demonstrator, answer_text
from rlfactory_judge.demo.task import JudgeDemo
from rlfactory_judge.demo.world import NOTHING, CaseMaker, Catalogue, Names, Question
from rlfactory_judge.forms.kinds import ScoreForm
from rlfactory_judge.rubrics.injections import injections
from rlfactory_judge.rubrics.rubric import Rubric
from rlfactory_judge.trust.labels import LabelledAnswer, read_labels, write_labels

from rlfactory_core import Message, Sample, StopReason, ToolContext, Trajectory
from rlfactory_core.config import RunConfig
from rlfactory_core.errors import UsageError
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.reporting.progress import NullProgress
from rlfactory_core.rewards import exact_match
from rlfactory_core.runner import prepare, resolve, run
from rlfactory_core.tasks.parts import TaskParts
from rlfactory_core.tiny import TinyModelRecipe
from rlfactory_core.types import Turn

pytestmark = pytest.mark.slow

NAMES = Names.make(0)
CATALOGUE = Catalogue.make(NAMES, "eval")


def drawn(count: int = 2000) -> list[LabelledAnswer]:
    draw, rng = CaseMaker([CATALOGUE]), random.Random(0)
    return [draw(rng) for _ in range(count)]


# --- the world ------------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_samples_and_another_seed_gives_others() -> None:
    first, again, other = (list(JudgeDemo(seed=seed).samples("eval")) for seed in (3, 3, 4))
    assert first == again
    assert {sample.prompt for sample in first}.isdisjoint(sample.prompt for sample in other)


def test_evaluation_is_about_a_catalogue_that_is_used_for_nothing_else() -> None:
    task = JudgeDemo()
    train, evaluation = list(task.samples("train")), list(task.samples("eval"))
    assert {s.metadata["catalogue"] for s in train}.isdisjoint(s.metadata["catalogue"] for s in evaluation)
    assert len({s.id for s in (*train, *evaluation)}) == len(train) + len(evaluation)
    assert 0.5 < sum(s.slice == "two_hop" for s in evaluation) / len(evaluation) < 0.7


def test_catalogues_share_names_but_hardly_an_answer() -> None:
    one, two = ({q.text: q.answer for q in Catalogue.make(NAMES, name).questions} for name in ("judge-0", "eval"))
    assert one.keys() == two.keys()
    assert sum(one[text] == two[text] for text in one) < 0.1 * len(one)


def test_looking_names_up_one_by_one_answers_every_question() -> None:
    for question in CATALOGUE.questions:
        for name, found in zip(question.path, question.path[1:], strict=False):
            assert f" {found}" in CATALOGUE.look_up(f" {name}")


def test_what_the_task_shows_of_solving_a_question_is_right_in_answer_and_form() -> None:
    with TaskBench("judge", [{"rewards": {"exact_match": 1.0, "format": 0.1}}]) as bench:
        for split in ("train", "eval"):
            samples = bench.samples(split, 20)
            played = bench.play(oracle(bench.task), samples)
            assert [each.reward for each in played] == pytest.approx([bench.reward_bounds[1]] * 20)
            assert [len(each.turns) for each in played] == [3 if s.slice == "two_hop" else 2 for s in samples]


def test_one_record_does_not_answer_a_question_that_takes_two() -> None:
    two_hop = [question for question in CATALOGUE.questions if question.hops == 2]
    told = sum(f" {question.answer}" in CATALOGUE.look_up(question.path[0]) for question in two_hop)
    assert told < 0.1 * len(two_hop)


def test_the_tool_answers_from_the_samples_own_catalogue_and_the_control_finds_nothing() -> None:
    task = JudgeDemo()
    sample = next(iter(task.samples("eval")))
    context = ToolContext("t", sample)
    name = NAMES.things[0]
    assert asyncio.run(task.look_up(name, context)) == CATALOGUE.look_up(name)
    assert asyncio.run(task.look_up("Zzz", context)) == NOTHING
    (control,) = task.controls()["empty_catalogue"]
    assert control.spec == task.tools[0].spec
    assert asyncio.run(control.call({"name": name}, context)) == NOTHING


def test_other_peoples_questions_are_refused() -> None:
    with pytest.raises(UsageError, match="plugin 'judge' plays only"):
        JudgeDemo().check([Sample("q1", "Who?", "me")])


# --- what the policy is shown ---------------------------------------------------------------------------------------


def test_clean_demonstrations_end_with_the_answer_and_careless_ones_often_do_not() -> None:
    rng = random.Random(0)

    def right(care: Carelessness, questions: Sequence[Question]) -> float:
        demonstrator = Demonstrator([CATALOGUE], 0.5, care)
        episodes = [(q, demonstrator.episode(CATALOGUE, q, rng)) for q in questions]
        return sum(messages[-1].content == answer_text(q.answer) for q, messages in episodes) / len(episodes)

    two_hop = [question for question in CATALOGUE.questions if question.hops == 2]
    assert right(Carelessness(), CATALOGUE.questions) == 1.0
    assert 0.0 < right(policy.CARELESS, two_hop) < 0.4
    assert right(Carelessness(stop_early=1.0), two_hop) < 0.1


def test_every_name_is_one_token_to_policy_and_judge() -> None:
    tiny_model = pytest.importorskip(
        "rlfactory_core.engines.local.tiny.tiny_model", reason="needs rlfactory-core[local]"
    )
    for made, forms in (
        (policy.recipe(NAMES, JudgeDemo().tools[0].spec), (" {}",)),
        (judge_model.recipe(NAMES), (" {}", "{}")),
    ):
        tokenizer = tiny_model.build_tokenizer(made.vocabulary(), made.vocab_size)
        words = [form.format(name) for name in NAMES.words for form in forms]
        assert [word for word in words if len(tokenizer.encode(word)) != 1] == []


# --- what the judge is shown ----------------------------------------------------------------------------------------


def test_half_of_the_labelled_answers_are_right() -> None:
    assert 0.45 < sum(case.label for case in drawn()) / 2000 < 0.55


def test_labels_say_what_is_true() -> None:
    """Prose around a right name is right to a judge, and wrong to a comparison of words."""
    for case in drawn():
        (truth,) = case.truth
        if case.label:
            assert truth in case.answer
        assert bool(exact_match(case.answer, [truth])) == (case.label and case.id != "prose")
    kinds = Counter(case.id for case in drawn())
    assert min(kinds.values()) > 10
    assert {case.label for case in drawn() if "prose" in case.id} == {True, False}


def test_the_judge_is_shown_nothing_of_the_catalogues_that_are_trained_and_evaluated_on() -> None:
    shown = {f"judge-{number}" for number in range(judge_model.CATALOGUES)} | {"judge-probe"}
    task = JudgeDemo()
    assert shown.isdisjoint(s.metadata["catalogue"] for split in ("train", "eval") for s in task.samples(split))


def test_a_demonstration_is_the_question_of_a_run_and_a_verdict_that_is_read_as_its_label() -> None:
    """In training the question is made of a trajectory, and in the warm start of a text."""
    rubric, form = Rubric.load(str(RUBRIC), "outcome"), ScoreForm(LOW, HIGH)
    examiner = Examiner(CaseMaker([CATALOGUE]))
    for case in drawn(300):
        sample = Sample("s", case.prompt, case.truth[0])
        turn = Turn((), (), (), Message("assistant", f"<answer> {case.answer} </answer>"))
        asked = rubric.question(Trajectory(sample, 0, (turn,), StopReason.FINAL_ANSWER), form)
        if case.id != "broken":  # what has no closing tag is read as the whole message
            expected = examiner.question(case)
            assert (asked.system, asked.user) == (expected.system, expected.user)
        assert asked.system == ""
        assert form.read(verdict(right=bool(case.label))) == (float(case.label),)


def test_the_demos_rubric_keeps_what_the_policy_wrote_in_its_quotation() -> None:
    rubric = Rubric.load(str(RUBRIC), "outcome")
    for injection in injections():
        text = injection.filled("Bale")
        asked = rubric.question_of_text(prompt="Who?", answer=text, truth=("Doru",), form=ScoreForm(LOW, HIGH)).user
        opening, _, closing = asked.partition("Given answer:\n")[2].partition("\n")[0], "", asked.splitlines()[-1]
        assert opening.startswith("<quoted:")
        assert closing == opening.replace("<", "</", 1)
        assert asked.count(opening) == asked.count(closing) == 1


def test_labels_for_calibration_are_read_back(tmp_path: Path) -> None:
    labels = demo_labels(0, 40)
    write_labels(tmp_path / "labels.jsonl", labels)
    assert read_labels(tmp_path / "labels.jsonl", low=LOW, high=HIGH) == labels
    assert labels == demo_labels(0, 40)
    assert {row.label for row in labels.answers} == {True, False}


def test_the_recipes_are_others_for_another_seed() -> None:
    spec = JudgeDemo().tools[0].spec
    for made in (judge_model.recipe, lambda names: policy.recipe(names, spec)):
        assert made(NAMES).fingerprint == made(Names.make(0)).fingerprint
        assert made(NAMES).fingerprint != made(Names.make(1)).fingerprint


# --- the run --------------------------------------------------------------------------------------------------------


def test_the_run_is_rewarded_by_the_judge_and_measured_by_the_truth() -> None:
    config = resolve(Registry(), None, ["plugin=judge"])
    parts = TaskParts.make(config, Registry())
    assert isinstance(parts.task, JudgeHost)
    assert parts.scorers.success == "exact_match"
    assert config.rewards is not None
    assert {reward.name: reward.weight for reward in config.rewards} == dict(JudgeDemo.rewards)
    saved = json.loads(config.model_dump_json())
    assert saved["rewards"][0]["rubric"] == str(RUBRIC)


def reduced(made: TinyModelRecipe, steps: int) -> TinyModelRecipe:
    """Its first stage alone, cut short: enough to write in the right form, too little to be right."""
    return replace(made, stages=(replace(made.stages[0], max_steps=steps, batch=16, target=0.0),))


def servers(cache: Path) -> list[int]:
    """The processes that serve a model of this cache."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if any("transformers.cli.serve" in word for word in words) and any(
            word.startswith(str(cache)) for word in words
        ):
            found.append(int(path.parent.name))
    return found


def test_a_run_is_scored_over_http_and_leaves_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real `transformers serve`, and both models made here, in small."""
    pytest.importorskip("torch", reason="needs rlfactory-core[local]")
    pytest.importorskip("fastapi", reason="needs transformers[serving]")
    cache = tmp_path / "cache"
    monkeypatch.setenv("RLFACTORY_CACHE", str(cache))
    policy_recipe, judge_recipe = policy.recipe, judge_model.recipe
    monkeypatch.setattr(judge_model, "recipe", lambda names: reduced(judge_recipe(names), 60))
    monkeypatch.setattr(task_module, "recipe", lambda names, tool: reduced(policy_recipe(names, tool), 60))
    monkeypatch.setattr(task_module, "MIN_KAPPA", -1.0)  # such a small judge would be refused
    options = ["plugin=judge", "train.workers=1", "train.steps=2", "train.prompts_per_step=2", "train.group_size=4"]
    options += ["eval.every=1", "eval.limit=4", "rollout.max_turns=2"]
    alive: list[list[int]] = []
    serve = JudgeDemo.serve_judge

    async def watched(task: JudgeDemo) -> JudgePlace:
        place = await serve(task)
        alive.append(servers(cache))
        return place

    monkeypatch.setattr(JudgeDemo, "serve_judge", watched)
    folder = run(prepare(None, [*options, f"out={tmp_path / 'run'}"]), NullProgress())

    assert len(alive[0]) >= 1
    assert servers(cache) == []
    attempts = [
        json.loads(line)
        for path in sorted((folder.path / "trajectories").iterdir())
        for line in path.read_text().splitlines()
    ]
    asked = [verdict["data"] for each in attempts if (verdict := each["score"]["verdicts"].get("judge"))]
    assert any(str(data.get("endpoint", "")).startswith("http://127.0.0.1:") for data in asked)
    steps = [json.loads(line) for line in (folder.path / "metrics.jsonl").read_text().splitlines()]
    assert len(steps) == 2
    for step in steps:
        assert {"judge", "exact_match", "eval/judge", "eval/exact_match"} <= step.keys()
        assert step["counts/judge.requests"] >= 1
    held_out = json.loads((folder.path / "summary.json").read_text())
    assert held_out["success"] == "exact_match"
    assert {"judge", "exact_match", "control/empty_catalogue/exact_match"} <= held_out["eval"]["after"].keys()


def test_the_guard_knows_which_score_is_an_opinion_and_what_can_be_had() -> None:
    registry = Registry()
    registry.load("judge")
    parts = TaskParts.make(RunConfig(plugin="judge"), registry)
    assert parts.scorers.opinions == ("judge",)
    assert parts.top_reward == pytest.approx(1.1)  # the truth has no weight
