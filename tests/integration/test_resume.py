"""A run that is killed, stopped or extended continues as if it had not been interrupted."""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from runs import (
    TINY_TASK,
    Cli,
    checkpoints,
    finish,
    metrics,
    repeatable,
    start,
    summary,
    wait_for_no_process,
    wait_until,
    write_lines,
)

from rlfactory_core.reporting.folder import RunFolder

pytestmark = pytest.mark.slow

RUN = ("run", "--plugin", TINY_TASK, "eval.limit=8")
SMALL = ("train.prompts_per_step=4", "train.group_size=4")


def kill_after(step: int, *arguments: object, run: Path) -> None:
    """Start the command, SIGKILL its first process when the step's metrics are there, and wait for the others' end."""
    process = start(*arguments)
    wait_until(lambda: len(metrics(run)) >= step, process)
    process.kill()
    assert finish(process).code == -signal.SIGKILL
    wait_for_no_process(process.pid)


@pytest.mark.parametrize(
    ("kills", "options"),
    [
        pytest.param(
            1,
            ["train.workers=2", "train.refill=true", "train.prompts=difficulty", "train.patience=4", "eval.every=2"],
            id="two processes and chosen prompts",
        ),
        pytest.param(
            2,
            [
                *("train.workers=1", "train.kl=0.05", "train.schedule=cosine", "train.updates_per_step=2"),
                *("train.advantage=gae", "train.critic_lr=1e-3", "train.lam=0.9"),
            ],
            id="one process and a critic",
        ),
    ],
)
def test_a_killed_run_resumes_to_the_same_metrics(cli: Cli, tmp_path: Path, kills: int, options: Sequence[str]) -> None:
    """Whatever a run keeps between steps is restored, because all that follows is equal to the bit.

    Two processes: which prompts were difficult, the groups that were refilled, evaluations before and after the kill.
    One process, killed twice: the reference model, the critic and its optimizer, the schedule of the learning rate, and
    several updates a step.
    """
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    command = [*RUN, *SMALL, *options, "rollout.deterministic=true", "--steps", "10"]
    outcome = cli(*command, "--out", whole)
    assert outcome.code == 0, outcome.err

    steps = sorted(random.Random(7).sample(range(3, 9), kills))
    kill_after(steps[0], *command, "--out", killed, run=killed)
    for step in steps[1:]:
        kill_after(step, "run", "--resume", killed, run=killed)
    assert len(metrics(killed)) < 10
    outcome = cli("run", "--resume", killed)
    assert outcome.code == 0, outcome.err

    assert [row["step"] for row in repeatable(whole)] == list(range(1, 11))
    assert repeatable(killed) == repeatable(whole)
    for part in ("eval", "sampled_tokens", "trained_tokens", "faults", "steps"):
        assert summary(killed)[part] == summary(whole)[part]
    assert checkpoints(killed) == checkpoints(whole)
    assert {"latest", "step-10", "step-8"} <= {
        *checkpoints(whole)
    }  # beside the best of its evaluations, if it has some
    last = [(run / "checkpoints" / "latest" / "model.safetensors").read_bytes() for run in (whole, killed)]
    assert last[0] == last[1]


def test_a_run_killed_before_its_first_checkpoint_cannot_be_resumed(cli: Cli, tmp_path: Path) -> None:
    run = tmp_path / "run"
    kill_after(1, *RUN, "train.workers=1", "checkpoint.every=0", "--steps", "1000", "--out", run, run=run)
    message = cli.refusal("run", "--resume", run)
    assert "There is no checkpoint" in message
    assert "Start it anew" in message


def test_ctrl_c_stops_after_the_step_and_the_run_can_be_made_to_end_elsewhere(cli: Cli, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = start(*RUN, *SMALL, "train.workers=2", "checkpoint.every=0", "--steps", "100000", "--out", run)
    wait_until(lambda: len(metrics(run)) >= 2, process)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all processes of the group
    outcome = finish(process)
    wait_for_no_process(process.pid)

    done = len(metrics(run))
    assert outcome.code == 130, outcome.out
    assert "stopping after this step" in outcome.out
    assert f"Stopped after step {done}, which is saved. Go on with: rlfactory run --resume {run}" in outcome.out
    assert "Traceback" not in outcome.out
    assert "\x1b" not in outcome.out
    assert checkpoints(run) == ["latest", f"step-{done}"]

    resumed = cli("run", "--resume", run, "--steps", done + 2, "checkpoint.every=1")
    assert resumed.code == 0, resumed.err
    assert [row["step"] for row in metrics(run)] == list(range(1, done + 3))
    assert summary(run)["steps"] == done + 2
    assert "exact_match" in summary(run)["eval"]["before"]
    assert "exact_match" in summary(run)["eval"]["after"]
    assert (run / "report.html").exists()
    assert checkpoints(run) == ["latest", f"step-{done + 1}", f"step-{done + 2}"]


def test_a_finished_run_can_be_made_longer(cli: Cli, tmp_path: Path) -> None:
    long, made_longer = tmp_path / "long", tmp_path / "made-longer"
    command = [*RUN, *SMALL, "train.workers=1", "rollout.deterministic=true"]
    assert cli(*command, "--steps", "4", "--out", long).code == 0
    assert cli(*command, "--steps", "2", "--out", made_longer).code == 0
    assert cli("run", "--resume", made_longer, "train.steps=4").code == 0
    assert repeatable(made_longer) == repeatable(long)
    assert summary(made_longer)["eval"] == summary(long)["eval"]


def test_a_run_that_has_learnt_ends_and_says_so_when_it_is_resumed(cli: Cli, tmp_path: Path) -> None:
    run = tmp_path / "run"
    goals = ("train.until.exact_match=0.2", "train.until.sampled/exact_match=0.05")
    outcome = cli(*RUN, *SMALL, *goals, "train.workers=2", "eval.every=2", "--steps", "40", "--out", run)
    assert outcome.code == 0, outcome.err
    found = summary(run)
    done = found["steps"]
    assert done < 40
    assert done == len(metrics(run))
    assert found["ended"]["by"] == "until"
    assert f"training ended: {found['ended']['text']}" in outcome.out
    assert found["ended"]["text"] in (run / "report.html").read_text(encoding="utf-8")
    last = metrics(run)[-1]
    assert last["eval/exact_match"] == found["eval"]["after"]["exact_match"]
    assert last["eval/sampled/exact_match"] == found["eval"]["after"]["sampled/exact_match"]
    assert "control/no_results/exact_match" in found["eval"]["after"]
    assert checkpoints(run)[-1] == f"step-{done}"

    refused = cli.refusal("run", "--resume", run, "--steps", "50")
    assert found["ended"]["text"] in refused
    assert "train.until=" in refused
    resumed = cli("run", "--resume", run, "train.until=", "--steps", done + 1)
    assert resumed.code == 0, resumed.err
    assert summary(run)["ended"] == {"by": "steps", "text": f"did all {done + 1} steps"}


def test_an_end_is_not_forgotten_by_a_kill_before_the_last_evaluation(cli: Cli, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = [*RUN, *SMALL, "train.until.exact_match=0.0", "train.workers=1", "eval.every=2", "--out", run]
    assert cli(*command).code == 0
    ended = summary(run)["ended"]
    (run / "report.html").unlink()
    outcome = cli("run", "--resume", run)
    assert outcome.code == 0, outcome.err
    assert (summary(run)["ended"], summary(run)["steps"], len(metrics(run))) == (ended, 2, 2)
    assert "exact_match" in summary(run)["eval"]["after"]


def test_a_second_ctrl_c_stops_at_once(tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = start(
        *RUN, *SMALL, "--hangs=true", "tools.deadline_s=300", "train.workers=2", "--steps", "4", "--out", run
    )
    assert process.stdout is not None
    said: list[str] = []
    for expected in ("train: ", "stopping after this step"):
        for line in process.stdout:
            said.append(line)
            if expected in line:
                break
        else:
            pytest.fail(f"ended with {process.wait()} before {expected!r}:\n{''.join(said)}")
        os.killpg(process.pid, signal.SIGINT)
    outcome = finish(process, seconds=60)
    wait_for_no_process(process.pid)
    assert outcome.code == 130, outcome.out
    assert outcome.out.strip().endswith("stopped"), outcome.out
    assert "Traceback" not in outcome.out


def test_rollouts_one_update_behind_say_so(cli: Cli, tmp_path: Path) -> None:
    run = tmp_path / "run"
    outcome = cli(*RUN, *SMALL, "train.workers=1", "train.staleness=1", "--steps", "5", "--out", run)
    assert outcome.code == 0, outcome.err
    rows = metrics(run)
    assert rows[0]["staleness"] == 0
    assert all(0 < row["staleness"] <= 1 for row in rows[1:])
    assert all(0 < row["importance_weight"] <= 2 for row in rows if row["trained_tokens"])


def prompts_of(run: Path) -> list[str]:
    """The ids of the samples that the steps trained, one for each group."""
    folder = RunFolder(run)
    found = []
    for step in folder.trajectory_steps():
        found += [
            stored.trajectory.sample.id for stored in folder.read_trajectories(step) if not stored.trajectory.attempt
        ]
    return sorted(found)


def test_a_resume_goes_on_with_the_groups_that_were_begun(cli: Cli, tmp_path: Path) -> None:
    on_policy, ahead = tmp_path / "on-policy", tmp_path / "ahead"
    command = [*RUN, *SMALL, "train.workers=2", "checkpoint.every=1", "checkpoint.keep=9"]
    assert cli(*command, "--steps", "5", "--out", on_policy).code == 0
    assert cli(*command, "--steps", "4", "train.staleness=2", "--out", ahead).code == 0
    for step in (2, 3, 4):  # as if it had been killed after its first checkpoint
        shutil.rmtree(ahead / "checkpoints" / f"step-{step}")
    outcome = cli("run", "--resume", ahead, "--steps", "5")
    assert outcome.code == 0, outcome.err
    assert prompts_of(ahead) == prompts_of(on_policy)  # none is lost, none is trained twice
    assert all(row["staleness_max"] <= 2 for row in metrics(ahead))


def test_the_distance_to_the_start_model_is_measured(cli: Cli, tmp_path: Path) -> None:
    run = tmp_path / "run"
    outcome = cli(
        *RUN, *SMALL, "train.workers=1", "train.updates_per_step=1", "train.kl=0.1", "--steps", "4", "--out", run
    )
    assert outcome.code == 0, outcome.err
    kl = [row["kl"] for row in metrics(run)]
    assert abs(kl[0]) < 1e-5
    assert all(value > 1e-4 for value in kl[2:])


@pytest.mark.parametrize("ended_by", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_of_the_system_saves_after_the_step(tmp_path: Path, ended_by: signal.Signals) -> None:
    run = tmp_path / "run"
    before = signal.signal(ended_by, signal.SIG_DFL)  # a child of nohup ignores SIGHUP, and so would its children
    try:
        process = start(*RUN, *SMALL, "train.workers=2", "checkpoint.every=0", "--steps", "100000", "--out", run)
    finally:
        signal.signal(ended_by, before)
    wait_until(lambda: len(metrics(run)) >= 2, process)
    os.killpg(process.pid, ended_by)  # to all processes, as a system that shuts down does
    outcome = finish(process)
    wait_for_no_process(process.pid)
    done = len(metrics(run))
    assert outcome.code == 128 + ended_by
    assert f"Stopped after step {done}, which is saved." in outcome.out
    assert checkpoints(run) == ["latest", f"step-{done}"]


def test_the_same_command_again_goes_on_with_its_run_from_any_folder(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, place = tmp_path / "run", tmp_path / "place"
    place.mkdir()
    monkeypatch.chdir(Path(TINY_TASK).parent)
    again = ["train.workers=1", *SMALL, "eval.limit=8", "--out", run, "--resume-or-start"]
    command = ["run", "--plugin", f"./{Path(TINY_TASK).name}", *again]
    assert "--out FOLDER" in cli.refusal(*command[:3], "--resume-or-start")
    assert cli(*command, "--steps", "1").code == 0
    assert yaml.safe_load((run / "config.yaml").read_text())["plugin"] == str(Path(TINY_TASK).resolve())
    monkeypatch.chdir(place)
    command[2] = str(TINY_TASK)
    assert "another --out" in cli.refusal(*command, "--steps", "1", "train.lr=1e-9")
    outcome = cli(*command, "--steps", "1")
    assert (outcome.code, len(metrics(run))) == (0, 1)
    assert "is finished: it has done 1 step" in outcome.out
    assert cli(*command, "--steps", "2").code == 0
    assert (len(metrics(run)), checkpoints(run)) == (2, ["latest", "step-1", "step-2"])
    for each in (run / "checkpoints").iterdir():  # as if it had been killed before its first one
        shutil.rmtree(each) if each.is_dir() and not each.is_symlink() else each.unlink()
    outcome = cli(*command, "--steps", "1")
    assert "no checkpoint yet: the run begins anew" in outcome.out
    assert (outcome.code, len(metrics(run))) == (0, 1)


def test_a_run_in_use_cannot_be_resumed(cli: Cli, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = start(*RUN, *SMALL, "train.workers=1", "checkpoint.every=1", "--steps", "100000", "--out", run)
    wait_until(lambda: len(metrics(run)) >= 2, process)
    message = cli.refusal("run", "--resume", run)
    assert f"{run} is in use by process {process.pid} on " in message
    process.kill()  # which frees it
    finish(process)
    wait_for_no_process(process.pid)
    done = int(checkpoints(run)[-1].removeprefix("step-"))
    assert cli("run", "--resume", run, "--steps", done + 1).code == 0


def test_a_checkpoint_of_the_version_before_is_resumed(cli: Cli, tmp_path: Path) -> None:
    """Its state is one file, with these fields; those of the loop are plain data beside the optimizer's."""
    torch = pytest.importorskip("torch")
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    more = (*SMALL, "train.workers=1", "rollout.deterministic=true", "train.advantage=gae", "eval.every=2")
    assert cli(*RUN, *more, "--steps", "3", "--out", whole).code == 0
    assert cli(*RUN, *more, "--steps", "2", "--out", cut).code == 0
    file = cut / "checkpoints" / "resume" / "step-2.pt"
    state = torch.load(file, weights_only=True)
    later = {"stage_first", "stages_done", "reference"}  # runs before that have one stage, and no policy at its start
    assert later <= {*state}
    state = {name: part for name, part in state.items() if name not in later}
    assert {*state} == {"step", "optimizer", "totals", "trainable", "pending", "loop", "critic"}
    del state["loop"]["postponed"]  # and no evaluation that a signal put off
    assert {*state["loop"]} == {"until", "rollouts", "ended", "calls"}
    calls = tuple(Counter(dict(each)) for each in state["loop"]["calls"])
    torch.save({**state, "loop": {**state["loop"], "calls": calls}}, file)
    file.rename(cut / "checkpoints" / "step-2" / "trainer_state.pt")  # where runs before that have it
    assert cli("run", "--resume", cut, "--steps", "3").code == 0
    first, second = ([(row["reward"], row["loss"], row["grad_norm"]) for row in metrics(run)] for run in (whole, cut))
    assert first == second


def test_a_damaged_checkpoint_gives_way_to_the_one_before_it(cli: Cli, tmp_path: Path) -> None:
    run, whole, before = tmp_path / "run", tmp_path / "whole", tmp_path / "before"
    command = [*RUN, *SMALL, "train.workers=1", "rollout.deterministic=true", "checkpoint.every=1"]
    assert cli(*command, "--steps", "4", "--out", whole).code == 0
    assert cli(*command, "--steps", "3", "--out", run).code == 0
    shutil.copytree(run, before, symlinks=True)
    for file in ("resume/step-3.pt", "step-3/model.safetensors"):
        shutil.rmtree(run)
        shutil.copytree(before, run, symlinks=True)
        damaged = run / "checkpoints" / file
        damaged.write_bytes(damaged.read_bytes()[:1000])
        lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
        (run / "metrics.jsonl").write_text("".join(lines[1:]))
        (run / ".summary.json.1.tmp").write_text("half")
        outcome = cli("run", "--resume", run, "--steps", "4")
        assert outcome.code == 0, outcome.err
        assert "The run goes on from the checkpoint before it." in outcome.out
        assert "metrics.jsonl has no line for 1 step that the checkpoint has done" in outcome.out
        assert repeatable(run) == repeatable(whole)[1:]
        assert not list(run.glob(".*.tmp"))


def test_a_damaged_model_in_the_cache_is_built_anew(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Among copies of all models of the tests' cache, each damaged, the run's own is whole again."""
    command = [*RUN, *SMALL, "--steps", "0", "train.workers=1"]
    assert cli(*command, "--out", tmp_path / "first").code == 0
    models, copies = Path(os.environ["RLFACTORY_CACHE"], "models"), tmp_path / "cache" / "models"
    names = [path.parent.name for path in models.glob("[!.]*/model.safetensors")]
    for name in names:
        shutil.copytree(models / name, copies / name)
        os.truncate(copies / name / "model.safetensors", 1000)
    monkeypatch.setenv("RLFACTORY_CACHE", str(tmp_path / "cache"))
    outcome = cli(*command, "--out", tmp_path / "second")
    assert outcome.code == 0, outcome.err
    assert "It was in the cache, and is built anew." in outcome.out
    (own,) = [name for name in names if (copies / name / "model.safetensors").stat().st_size > 1000]
    whole, again = ((place / own / "model.safetensors").read_bytes() for place in (models, copies))
    assert again == whole


def test_data_that_has_changed_is_noticed(cli: Cli, tiny_model: Path, tmp_path: Path) -> None:
    run, data = tmp_path / "run", tmp_path / "train.jsonl"
    rows = [{"prompt": f"What colour is {thing}?", "answer": "red", "thing": thing, "colour": "red"} for thing in "AB"]
    write_lines(data, rows)
    columns = ("data.columns.prompt=prompt", "data.columns.answer=answer")
    lengths = ("rollout.max_tokens=320", "rollout.max_turn_tokens=40")
    command = [*RUN, *SMALL, *columns, *lengths, "--data", data, "--eval-data", data, "--model", tiny_model]
    command += ["train.workers=1", "--steps", "1"]
    outcome = cli(*command, "--out", run)
    assert outcome.code == 0, outcome.err
    write_lines(data, rows[:1])
    outcome = cli("run", "--resume", run, "--steps", "2")
    assert outcome.code == 0, outcome.err
    assert f"warning: {data} has changed since the run began." in outcome.out
