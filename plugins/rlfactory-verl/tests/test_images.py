"""A random vision-language model, trained by verl and vLLM on images, with rollouts and updates at once, to Ctrl-C."""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from mcp_runs import trajectories
from runs import finish, metrics, start, summary, wait_until
from tiny_vision import QWEN2_VL_TEMPLATE, make_vlm
from verl_runs import LIMIT_S, VERL

pytest.importorskip("verl", reason="the verl engine: rlfactory doctor --engine verl --install")
pytest.importorskip("vllm", reason="the verl engine: rlfactory doctor --engine verl --install")
pytest.importorskip("torchvision", reason="`nox -s verl` installs it", exc_type=RuntimeError)
pytest_plugins = ("verl_runs",)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("nothing_of_verl_left"),
    pytest.mark.skipif(find_spec("rlfactory_vision") is None, reason="`nox -s verl` installs it"),
]
TASK = Path(__file__).parents[3] / "tests" / "support" / "looked_task.py"
STOPPED = 130


def test_verl_samples_and_trains_with_the_images_of_prompts_and_tools_until_ctrl_c(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever vLLM sampled has the log-probs that transformers computes with the images and the weights of then."""
    monkeypatch.setenv("RLFACTORY_CACHE", str(tmp_path / "cache"))
    model = make_vlm(tmp_path / "vlm", "qwen2_5_vl", head=32, template=QWEN2_VL_TEMPLATE, ends=True)
    run = tmp_path / "run"
    learn = ("train.prompts_per_step=4", "train.group_size=4", "train.lr=1e-5", "train.muon_lr=0", "checkpoint.every=1")
    given = ("rollout.max_turn_tokens=32", "rollout.max_tokens=160", "dtype=float32", "checkpoint.keep=99", *learn)
    at_once = ("verl.mode=separate_async", "train.staleness=1")
    process = start(
        "run", "--plugin", TASK, *VERL, "--model", model, "--steps", "90", *given, *at_once, "--out", run
    )  # fmt: skip
    wait_until(lambda: len(metrics(run)) >= 4, process, LIMIT_S)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    stopped = finish(process, LIMIT_S)
    assert stopped.code == STOPPED, stopped.out
    rows = metrics(run)
    done = len(rows)
    assert f"Stopped after step {done}" in stopped.out
    assert [(row["step"], row["masked"]) for row in rows] == [(step, 0) for step in range(1, done + 1)]
    assert rows[0]["grad_norm"] > 0
    assert rows[0]["rollout_probs_diff_max"] < 0.005  # of probabilities near 1, with the weights that sampled
    assert all(row["staleness"] <= 1 for row in rows)
    found = summary(run)  # of a run that was stopped, too
    assert (found["engine"], found["mode"], found["gpus"]) == ("verl", "separate_async", 2)
    proof = found["policy_moved"]  # vLLM scored the rows with their images
    assert proof["to_new"] < 0.005 < proof["moved"] / 3 < proof["to_old"]
    steps = [trajectories(run, f"step-{row['step']:06d}") for row in rows]
    assert {len(played) for played in steps} == {16}
    assert sum(len(each["turns"]) == 2 for each in steps[0]) >= 8  # the others were cut in their first turn
    by_version = defaultdict(list)  # but for those in whose middle the weights changed
    for each in (each for played in steps for each in played):
        if len(versions := versions_of(each)) == 1:
            by_version[versions.pop()].append(each)
    assert len(by_version) > 1  # weights were passed on
    by_colour = {each["sample"]["answer"]: images_of(each) for each in steps[0] if len(each["turns"]) == 2}
    assert len(by_colour) == 2
    for version in sorted(by_version)[:2]:  # later, what is likeliest may be so whatever the image
        folder = run / "checkpoints" / f"step-{version}" if version else model
        assert_the_images_were_seen(folder, by_version[version], by_colour)
    names = {digest for played in steps for each in played for digest in images_of(each)}
    assert names <= {path.stem for path in (run / "trajectories" / "images").glob("*.png")}


def versions_of(trajectory: dict[str, Any]) -> set[int]:
    return {version for turn in trajectory["turns"] for version in (turn["version"], *turn.get("versions", ()))}


def images_of(trajectory: dict[str, Any]) -> list[str]:
    return [digest for turn in trajectory["turns"] for digest in turn["images"]]


def assert_the_images_were_seen(folder: Path, played: list[dict[str, Any]], by_colour: dict[int, list[str]]) -> None:
    """The recorded log-probs are those that transformers computes with the images, not with those of another colour."""
    import torch
    from rlfactory_vision.chat import vision_format

    from rlfactory_core.engines.local.model.loading import load_pretrained

    model, tokenizer = load_pretrained(str(folder), torch.device("cpu"), torch.float32)
    chat: Any = vision_format(tokenizer)
    banned = list(chat.encode("<|image_pad|><|video_pad|>"))
    for each in played:
        turns, others = each["turns"], by_colour[1 - each["sample"]["answer"]]
        ids = torch.tensor([[token for turn in turns for token in (*turn["context_ids"], *turn["sampled_ids"])]])
        # of 16 x 16 and 24 x 16 pixels; the text of the tool is no image
        assert int((ids == banned[0]).sum()) == (4, 4 + 6)[len(turns) - 1]
        own = [
            kept for turn in turns for kept in (*[False] * len(turn["context_ids"]), *[True] * len(turn["logprobs"]))
        ]
        recorded = torch.tensor([value for turn in turns for value in turn["logprobs"]])
        found, without = (
            _log_probs(model, chat, ids, names, banned)[own[1:]] for names in (images_of(each), others[: len(turns)])
        )
        torch.testing.assert_close(recorded, found, rtol=0, atol=1e-4)
        assert not torch.allclose(recorded, without, atol=1e-2)


def _log_probs(model: Any, chat: Any, ids: Any, images: list[str], banned: list[int]) -> Any:
    import torch

    with torch.no_grad():
        logits = model(input_ids=ids, **chat.vision.inputs(ids, [images])).logits[0].float()
    logits[:, banned] = -torch.inf  # verl keeps vLLM from sampling them
    return torch.log_softmax(logits, -1)[:-1].gather(1, ids[0, 1:, None])[:, 0]
