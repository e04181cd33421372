"""The demo's labelled answers, the question in which its judge is asked, its server, and a whole run."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from process_tree import is_running
from rlfactory_judge.contract import JudgeHost, JudgePlace
from rlfactory_judge.demo import judge_model
from rlfactory_judge.demo import task as task_module
from rlfactory_judge.demo.judge_model import HIGH, LOW, RUBRIC, CaseMaker, Examiner, demo_labels, verdict
from rlfactory_judge.demo.server import local_server
from rlfactory_judge.demo.task import JudgeDemo
from rlfactory_judge.forms import ScoreForm
from rlfactory_judge.rubrics.injections import injections
from rlfactory_judge.rubrics.rubric import Rubric
from rlfactory_judge.trust.labels import LabelledAnswer, read_labels, write_labels
from rlfactory_search import Names, SearchTask, World
from waiting import until

from rlfactory_core import Message, Sample, StopReason, Trajectory
from rlfactory_core.config import RunConfig
from rlfactory_core.errors import BackendError, UsageError
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.rewards import exact_match
from rlfactory_core.runner import TaskBench, oracle, prepare, read, resolve, run
from rlfactory_core.runner.making import make_tasks
from rlfactory_core.tiny import TinyModelRecipe
from rlfactory_core.types import Turn

pytestmark = pytest.mark.slow

NAMES = Names.make(0)
WORLD = World.make(NAMES, "eval")


def drawn(count: int = 2000) -> list[LabelledAnswer]:
    draw, rng = CaseMaker([WORLD]), random.Random(0)
    return [draw(rng) for _ in range(count)]


# --- the task -------------------------------------------------------------------------------------------------------


def test_what_the_task_shows_of_solving_a_question_is_right_in_answer_and_form() -> None:
    with TaskBench("judge", [{"rewards": {"exact_match": 1.0, "format": 0.1}}]) as bench:
        for split in ("train", "eval"):
            played = bench.play(oracle(bench.task), bench.samples(split, 20))
            assert [each.reward for each in played] == pytest.approx([bench.reward_bounds[1]] * 20)


def test_other_peoples_questions_are_refused() -> None:
    with pytest.raises(UsageError, match="plugin 'judge' plays only"):
        JudgeDemo().check([Sample("q1", "Who?", "me")])


# --- what the judge is shown ----------------------------------------------------------------------------------------


def test_every_name_is_one_token_to_the_judge() -> None:
    tiny_model = pytest.importorskip(
        "rlfactory_core.engines.local.tiny.tiny_model", reason="needs rlfactory-core[local]"
    )
    recipe = judge_model.recipe(NAMES)
    tokenizer = tiny_model.build_tokenizer(recipe.vocabulary(), recipe.vocab_size)
    words = [form.format(name) for name in NAMES.words for form in (" {}", "{}")]
    assert [word for word in words if len(tokenizer.encode(word)) != 1] == []


def test_half_of_the_labelled_answers_are_right_and_labels_are_true() -> None:
    """Prose around a right name is right to a judge, and wrong to a comparison of words."""
    assert 0.45 < sum(case.label for case in drawn()) / 2000 < 0.55
    for case in drawn():
        (truth,) = case.truth
        if case.label:
            assert truth in case.answer
        assert bool(exact_match(case.answer, [truth])) == (case.label and case.id != "prose")
    kinds = Counter(case.id for case in drawn())
    assert min(kinds.values()) > 10
    assert {case.label for case in drawn() if "prose" in case.id} == {True, False}


def test_the_judge_is_shown_nothing_of_the_worlds_that_are_trained_and_evaluated_on() -> None:
    shown = {f"judge-{number}" for number in range(judge_model.WORLDS)} | {"judge-probe", "judge-labels"}
    task = JudgeDemo()
    assert shown.isdisjoint(s.metadata["world"] for split in ("train", "eval") for s in task.samples(split))


def test_a_demonstration_is_the_question_of_a_run_and_a_verdict_that_is_read_as_its_label() -> None:
    """In training the question is made of a trajectory, and in the warm start of a text."""
    rubric, form = Rubric.load(str(RUBRIC), "outcome"), ScoreForm(LOW, HIGH)
    examiner = Examiner(CaseMaker([WORLD]))
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


def test_the_recipe_is_another_one_for_another_seed() -> None:
    recipe = judge_model.recipe
    assert recipe(NAMES).fingerprint == recipe(Names.make(0)).fingerprint != recipe(Names.make(1)).fingerprint


# --- the server -----------------------------------------------------------------------------------------------------

_OWNER = """
import asyncio, sys
from pathlib import Path
from rlfactory_judge.demo.server import local_server
async def main():
    async with local_server(Path(sys.argv[1])) as url:
        print(url, flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model's folder. Temporary folders go beside it, and have to be gone at the end."""
    pytest.importorskip("fastapi", reason="needs transformers[serving]")
    from tiny_judge import tiny_judge

    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    return tiny_judge(tmp_path / "model")


def test_a_model_is_served_while_the_block_lasts(tiny: Path) -> None:
    async def scenario() -> str:
        async with local_server(tiny) as url:
            body = {"model": str(tiny), "messages": [{"role": "user", "content": "Paris?"}], "max_tokens": 4}
            async with httpx.AsyncClient(trust_env=False, timeout=60.0) as client:
                reply = await client.post(f"{url}/chat/completions", json=body)
            assert reply.json()["usage"]["completion_tokens"] <= 4
            return url

    url = asyncio.run(scenario())
    with pytest.raises(httpx.ConnectError):
        httpx.get(url, trust_env=False)
    assert not [*Path(tempfile.gettempdir()).glob("rlfactory-judge-*")]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a killed program cannot end its children")
def test_the_server_ends_with_its_killed_owner(tiny: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", _OWNER, str(tiny)], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        url = owner.stdout.readline().strip()
        assert httpx.get(f"{url.removesuffix('/v1')}/health", trust_env=False).is_success
        family = servers(tiny)
        owner.send_signal(signal.SIGKILL)
        until(lambda: not any(map(is_running, family)), "the server to end")


def test_the_last_words_of_a_server_are_shown(tiny: Path) -> None:
    config = json.loads((tiny / "config.json").read_text())
    (tiny / "config.json").write_text(json.dumps({**config, "model_type": "no_such_model"}))

    with pytest.raises(BackendError, match="no_such_model"):
        asyncio.run(local_server(tiny, ready_s=60.0).__aenter__())
    assert not [*Path(tempfile.gettempdir()).glob("rlfactory-judge-*")]


# --- the run --------------------------------------------------------------------------------------------------------


def test_the_run_is_rewarded_by_the_judge_and_measured_by_the_truth() -> None:
    config = resolve(Registry(), read(None, ["plugin=judge"])).config
    setup = make_tasks(config, Registry()).only
    assert isinstance(setup.task, JudgeHost)
    assert setup.scorers.success == "exact_match"
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
    judge_recipe, policy_recipe = judge_model.recipe, SearchTask.tiny_model
    monkeypatch.setattr(judge_model, "recipe", lambda names: reduced(judge_recipe(names), 60))
    monkeypatch.setattr(SearchTask, "tiny_model", lambda task: reduced(policy_recipe(task), 60))
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
    folder = run(prepare(None, [*options, f"out={tmp_path / 'run'}"]), Progress())

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
    assert {"judge", "exact_match", "control/no_results/exact_match"} <= held_out["eval"]["after"].keys()


def test_the_guard_knows_which_score_is_an_opinion_and_what_can_be_had() -> None:
    registry = Registry()
    registry.load("judge")
    tasks = make_tasks(RunConfig(plugin="judge"), registry)
    assert tasks.scorers.opinions == ("judge",)
    assert tasks.top_reward == pytest.approx(1.1)  # the truth has no weight
