"""A random vision-language model, trained by verl and vLLM on the CPU on images of prompts and of a tool."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from mcp_runs import trajectories
from runs import metrics, summary
from tiny_vision import QWEN2_VL_TEMPLATE, make_vlm
from verl_runs import VERL, rlfactory

pytest.importorskip("verl", reason="the verl engine: rlfactory doctor --engine verl --install")
pytest.importorskip("vllm", reason="the verl engine: rlfactory doctor --engine verl --install")
pytest.importorskip("torchvision", reason="`nox -s verl` installs it", exc_type=RuntimeError)
pytest_plugins = ("verl_runs",)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("nothing_of_verl_left"),
    pytest.mark.skipif(find_spec("rlfactory_vision") is None, reason="`nox -s verl` installs it"),
]
TASK = Path(__file__).parents[1] / "support" / "looked_task.py"


def test_verl_samples_and_trains_with_the_images_of_prompts_and_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What vLLM sampled, before and after an update, has the log-probs that transformers computes with the images."""
    monkeypatch.setenv("RLFACTORY_CACHE", str(tmp_path / "cache"))
    model = make_vlm(tmp_path / "vlm", "qwen2_5_vl", head=32, template=QWEN2_VL_TEMPLATE, ends=True)
    run = tmp_path / "run"
    learn = ("train.prompts_per_step=4", "train.group_size=4", "train.lr=1e-5", "train.muon_lr=0", "checkpoint.every=1")
    given = ("rollout.max_turn_tokens=32", "rollout.max_tokens=160", "dtype=float32", *learn)
    rlfactory("run", "--plugin", TASK, *VERL, "--model", model, "--steps", "2", *given, "--out", run)

    rows = metrics(run)
    assert [(row["step"], row["masked"]) for row in rows] == [(1, 0), (2, 0)]
    assert rows[0]["grad_norm"] > 0
    assert max(row["rollout_probs_diff_max"] for row in rows) < 0.005  # of probabilities near 1
    proof = summary(run)["policy_moved"]  # vLLM scored the rows with their images
    assert proof["to_new"] < 0.005 < proof["moved"] / 3 < proof["to_old"]
    names = set()
    for step, sampler in ((1, model), (2, run / "checkpoints" / "step-1")):
        played = trajectories(run, f"step-{step:06d}")
        assert len(played) == 16
        assert sum(len(each["turns"]) == 2 for each in played) >= 8  # the others were cut in their first turn
        assert_the_images_were_seen(sampler, played)
        names |= {digest for each in played for digest in images_of(each)}
    assert names <= {path.stem for path in (run / "trajectories" / "images").glob("*.png")}


def images_of(trajectory: dict[str, Any]) -> list[str]:
    return [digest for turn in trajectory["turns"] for digest in turn["images"]]


def assert_the_images_were_seen(folder: Path, played: list[dict[str, Any]]) -> None:
    """The recorded log-probs are those that transformers computes with the images, not with those of another colour."""
    import torch
    from rlfactory_vision.chat import vision_format

    from rlfactory_core.engines.local.model.loading import load_pretrained

    model, tokenizer = load_pretrained(str(folder), torch.device("cpu"), torch.float32)
    chat: Any = vision_format(tokenizer)
    banned = list(chat.encode("<|image_pad|><|video_pad|>"))
    by_colour = {each["sample"]["answer"]: images_of(each) for each in played if len(each["turns"]) == 2}
    assert len(by_colour) == 2
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
