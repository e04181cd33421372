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
    """What vLLM sampled has the log-probs that transformers computes with the images, and not with others."""
    monkeypatch.setenv("RLFACTORY_CACHE", str(tmp_path / "cache"))
    model, run = make_vlm(tmp_path / "vlm", "qwen2_5_vl", head=32, template=QWEN2_VL_TEMPLATE), tmp_path / "run"
    learn = ("train.prompts_per_step=4", "train.group_size=4", "train.lr=1e-2", "train.muon_lr=0", "eval.every=0")
    small = ("rollout.max_turn_tokens=3", "rollout.max_tokens=160", "eval.limit=2", "eval.sampled=false")
    given = ("--model", model, "dtype=float32", "--steps", "2", *learn, *small)
    rlfactory("run", "--plugin", TASK, *VERL, *given, "--out", run)

    rows = metrics(run)
    assert [row["step"] for row in rows] == [1, 2]
    assert all(row["masked"] == 0 and row["grad_norm"] > 0 for row in rows), rows
    assert max(row["rollout_probs_diff_max"] for row in rows) < 0.02
    proof = summary(run)["policy_moved"]  # vLLM scored the rows with their images
    assert proof["to_new"] < proof["moved"] / 3 < proof["to_old"]
    played = trajectories(run, "step-000001")
    assert len(played) == 16
    assert {tuple(len(turn["images"]) for turn in each["turns"]) for each in played} == {(1, 1)}
    assert_the_images_were_seen(model, played)
    checkpoint = run / "checkpoints" / "latest"
    assert_the_images_were_seen(checkpoint, [])  # it has all that the embedded engine needs
    names = {digest for each in played for turn in each["turns"] for digest in turn["images"]}
    assert names <= {path.stem for path in (run / "trajectories" / "images").glob("*.png")}


def assert_the_images_were_seen(folder: Path, played: list[dict[str, Any]]) -> None:
    """The recorded log-probs are those of the model in the folder, by transformers' own forward pass."""
    import torch
    from rlfactory_vision.chat import vision_format

    from rlfactory_core.engines.local.model.loading import load_pretrained

    model, tokenizer = load_pretrained(str(folder), torch.device("cpu"), torch.float32)
    chat: Any = vision_format(tokenizer)
    chat.prove()
    banned = list(chat.encode("<|image_pad|><|video_pad|>"))
    for number, each in enumerate(played):
        turns = each["turns"]
        ids = torch.tensor([[token for turn in turns for token in (*turn["context_ids"], *turn["sampled_ids"])]])
        assert int((ids == banned[0]).sum()) == 4 + 6  # 16 x 16 and 24 x 16 pixels; the text of the tool is no image
        own = [
            kept for turn in turns for kept in (*[False] * len(turn["context_ids"]), *[True] * len(turn["logprobs"]))
        ]
        recorded = torch.tensor([value for turn in turns for value in turn["logprobs"]])
        images = [digest for turn in turns for digest in turn["images"]]
        others = [digest for turn in played[number - 8]["turns"] for digest in turn["images"]]
        found, without = (_log_probs(model, chat, ids, names, banned)[own[1:]] for names in (images, others))
        assert torch.allclose(recorded, found, atol=1e-3)
        assert images == others or not torch.allclose(recorded, without, atol=1e-3)


def _log_probs(model: Any, chat: Any, ids: Any, images: list[str], banned: list[int]) -> Any:
    import torch

    with torch.no_grad():
        logits = model(input_ids=ids, **chat.vision.inputs(ids, [images])).logits[0].float()
    logits[:, banned] = -torch.inf  # verl keeps vLLM from sampling them
    return torch.log_softmax(logits, -1)[:-1].gather(1, ids[0, 1:, None])[:, 0]
