"""The main claim in small: a run raises held-out exact match, and one that cannot learn does not pass for it."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
from runs import TINY_TASK, Cli, metrics, repeatable, summary

pytestmark = pytest.mark.slow

RUN = ("run", "--plugin", TINY_TASK, "train.workers=1", "train.group_size=8", "train.updates_per_step=2")


def learned(run: Path) -> bool:
    """Whether the policy looks up what it used to guess: one in eight guesses is right."""
    before, after = (summary(run)["eval"][when] for when in ("before", "after"))
    greedy, sampled = (after[name] - before[name] for name in ("exact_match", "sampled/exact_match"))
    return bool(greedy >= 0.3 and sampled >= 0.3)


def test_a_run_learns_to_look_things_up(cli: Cli, tmp_path: Path) -> None:
    run = tmp_path / "run"
    outcome = cli(*RUN, "--steps", "40", "--out", run)
    assert outcome.code == 0, outcome.err
    assert learned(run), summary(run)["eval"]
    after = summary(run)["eval"]["after"]
    assert after["exact_match"] >= 0.6
    # what it has learnt is to use the tool: without results it knows no more than before
    assert after["control/no_results/exact_match"] <= 0.3
    assert "Held-out exact match (greedy) rose from" in outcome.out


def test_a_run_whose_weights_stay_does_not_count_as_learning(cli: Cli, tmp_path: Path) -> None:
    run = tmp_path / "run"
    outcome = cli(*RUN, "--steps", "5", "train.lr=1e-12", "train.muon_lr=0", "--out", run)
    assert outcome.code == 0, outcome.err
    assert not learned(run)


HACKED = ("rewards={hasty: 1.0, exact_match: 0.0}", "train.prompts_per_step=16", "train.lr=2e-4", "train.muon_lr=3e-4")


def test_the_guard_stops_a_policy_that_hacks_its_reward(cli: Cli, tmp_path: Path) -> None:
    run = tmp_path / "run"
    options = ("eval.every=0", "eval.limit=8", "eval.sampled=false", "train.guard=stop")
    outcome = cli("run", "--plugin", TINY_TASK, "train.workers=1", *HACKED, *options, "--steps", "60", "--out", run)
    assert outcome.code == 130, outcome.err
    rows = metrics(run)
    assert len(rows) < 60
    assert rows[-1]["guard/reward"] == 1.0
    said = "hasty has risen"
    assert "warning: step" in outcome.out
    assert said in outcome.out
    assert said in outcome.err  # why it stopped
    assert (run / "checkpoints" / f"step-{len(rows)}").is_dir()


def test_the_guard_goes_back_once_and_on_with_a_lower_learning_rate(cli: Cli, tmp_path: Path) -> None:
    run = tmp_path / "run"
    options = ("eval.every=0", "eval.limit=8", "eval.sampled=false", "train.guard=rollback", "checkpoint.every=4")
    outcome = cli("run", "--plugin", TINY_TASK, "train.workers=1", *HACKED, *options, "--steps", "60", "--out", run)
    assert outcome.code == 130, outcome.err  # half the learning rate only makes it slower to hack this reward
    back = summary(run)["rolled_back"]
    assert back["to"] <= back["from"] - 5
    assert back["to"] % 4 == 0
    assert back["lr"] == pytest.approx(1e-4)
    assert f"The run goes back to step {back['to']}, and on with train.lr=0.0001." in outcome.out
    rows = metrics(run)
    assert [row["step"] for row in rows] == list(range(1, len(rows) + 1))
    assert rows[back["to"]]["lr"] == pytest.approx(1e-4)
    assert rows[back["to"] - 1]["lr"] == pytest.approx(2e-4)
    assert rows[-1]["guard/reward"] == 1.0  # the second time it stops
    assert "goes back" not in cli("run", "--resume", run, "--steps", str(len(rows) + 1)).out


OWN = """

@hookimpl
def rlfactory_advantages(register):
    from rlfactory_core.algo.advantages import GRPO

    register("my-grpo", lambda trajectories, credit: GRPO(trajectories, credit))
    register("nothing", lambda trajectories, credit: [[0.0] * len(each.turns) for each in trajectories])


@hookimpl
def rlfactory_loss_functions(register):
    def mine(tokens, clip):
        from rlfactory_core.algo.losses import ppo

        return ppo(tokens, clip)

    register("my-ppo", mine)
"""


def test_a_plugins_advantage_and_loss_are_those_that_train(cli: Cli, tmp_path: Path) -> None:
    plugin = tmp_path / "own.py"
    plugin.write_text(Path(TINY_TASK).read_text(encoding="utf-8") + OWN, encoding="utf-8")
    small = (
        "train.workers=1",
        "rollout.deterministic=true",
        "eval.limit=4",
        "train.prompts_per_step=4",
        "--steps",
        "2",
    )

    def trained(*keys: str) -> list[dict[str, float]]:
        out = tmp_path / "-".join(keys or ("usual",))
        outcome = cli("run", "--plugin", plugin, *small, *keys, "--out", out)
        assert outcome.code == 0, outcome.err
        return repeatable(out)

    usual = trained()
    assert usual[0]["trained_tokens"]
    assert trained("train.advantage=my-grpo", "train.loss=my-ppo") == usual
    assert [row["trained_tokens"] for row in trained("train.advantage=nothing")] == [0.0, 0.0]
    turns = trained("train.advantage=turn_rloo")
    assert turns[0]["trained_tokens"]
    assert turns[1]["reward"] != usual[1]["reward"] or turns[0]["loss"] != usual[0]["loss"]


def test_a_sampler_that_keeps_its_weights_stops_the_run(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rlfactory_core.engines.local import engine

    usual = engine.make_decoder
    monkeypatch.setattr(engine, "make_decoder", lambda policy, **options: usual(copy.deepcopy(policy), **options))
    run = tmp_path / "run"
    outcome = cli("run", "--plugin", TINY_TASK, "train.workers=1", "eval.limit=4", "--steps", "3", "--out", run)
    assert outcome.code == 1
    assert "The sampler does not have the trained weights. After the update of step 1" in outcome.err
    assert metrics(run) == []


@pytest.mark.parametrize("keys", [(), ("train.lora.rank=4",), ("train.staleness=1",), ("train.workers=2",)])
def test_each_start_and_resume_shows_that_the_sampler_has_the_new_weights(
    cli: Cli, tmp_path: Path, keys: tuple[str, ...]
) -> None:
    run = tmp_path / "run"
    outcome = cli("run", "--plugin", TINY_TASK, "train.workers=1", "eval.limit=4", *keys, "--steps", "2", "--out", run)
    assert outcome.code == 0, outcome.err
    first = summary(run)["policy_moved"]
    assert first["step"] == 1
    assert first["to_new"] < 1e-4 < first["moved"]
    assert cli("run", "--resume", run, "--steps", "3").code == 0
    assert summary(run)["policy_moved"]["step"] == 3


def test_adapters_are_exported_alone_and_merged(cli: Cli, tmp_path: Path, tiny_model: Path) -> None:
    torch = pytest.importorskip("torch")
    peft = pytest.importorskip("peft", reason="needs rlfactory-core[lora]")
    from transformers import AutoModelForCausalLM

    run, keys = tmp_path / "run", ("train.lora.rank=4", "train.lr=1e-2", "rollout.max_tokens=320", "eval.limit=4")
    outcome = cli(
        "run", "--plugin", TINY_TASK, "--model", tiny_model, "train.workers=1", *keys, "--steps", "1", "--out", run
    )
    assert outcome.code == 0, outcome.err
    latest, ids = run / "checkpoints" / "latest", torch.arange(1, 40)[None]
    with torch.no_grad():
        merged = AutoModelForCausalLM.from_pretrained(latest)(ids).logits
        start = AutoModelForCausalLM.from_pretrained(tiny_model)
        before = start(ids).logits
        adapted = peft.PeftModel.from_pretrained(start, str(latest / "adapter"))(ids).logits
    assert float((adapted - merged).abs().max()) < 1e-4 < float((before - merged).abs().max())
