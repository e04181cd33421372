"""Vision-language models of both architectures on the embedded engine: their ids, what they sample, what is trained."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from glance_task import picture
from rlfactory_vision import Image
from rlfactory_vision.chat import vision_format
from runs import Cli, metrics, summary
from tiny_vision import KINDS, make_vlm

from rlfactory_core.engines.local.decoding.decoder import Request
from rlfactory_core.engines.local.decoding.padded_decoder import make_decoder
from rlfactory_core.engines.local.model.loading import load_pretrained, make_policy, quiet_transformers
from rlfactory_core.engines.local.model.logprobs import token_logprobs
from rlfactory_core.engines.local.model.pack import pack
from rlfactory_core.engines.local.model.policy import IMPOSSIBLE, PaddedPolicy
from rlfactory_core.errors import ChatFormatError, ModelError
from rlfactory_core.types import Message, SamplingParams, ToolCall, TrainSequence

pytest_plugins = ("run_fixtures",)
TASK = Path(__file__).parents[3] / "tests" / "support" / "glance_task.py"


@pytest.fixture(scope="module", params=KINDS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_vlm(tmp_path_factory.mktemp("vlm"), request.param)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("RLFACTORY_CACHE", str(tmp_path / "cache"))
    with quiet_transformers():
        yield tmp_path / "cache"


def load(folder: Path) -> tuple[Any, Any]:
    model, tokenizer = load_pretrained(str(folder), torch.device("cpu"), torch.float32)
    return model, vision_format(tokenizer)


def asked(chat: Any, *texts: str) -> tuple[tuple[int, ...], tuple[str, ...]]:
    messages = [Message("user", text) for text in texts]
    return chat.initial_ids(messages, ()), chat.vision.images_in(messages)


def test_the_ids_are_those_of_the_models_own_processor_and_are_appended_likewise(folder: Path) -> None:
    _, chat = load(folder)
    chat.prove()
    image = Image.of(picture("red", 0))
    user, seen = Message("user", "Look."), Message("tool", f"You see:\n{image}", tool_call_id="call_0", name="look")
    call = Message("assistant", "", tool_calls=(ToolCall("call_0", "look", "{}", {}),))
    appended = (*chat.initial_ids([user], ()), *chat.encode(chat.written(call)), *chat.observation_ids([seen]))
    assert appended == chat.initial_ids([user, call, seen], ())
    assert appended.count(chat.encode("<|image_pad|>")[0]) == 4  # 16 patches, merged by 2 x 2


def test_a_processor_that_makes_other_ids_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, chat = load(folder)
    monkeypatch.setattr(type(chat.vision), "text", lambda self, image: "<|vision_start|><|image_pad|><|vision_end|>")
    with pytest.raises(ChatFormatError, match="the ids differ from number"):
        chat.prove()


def test_a_folder_without_an_image_processor_says_what_to_do(folder: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(folder, tmp_path / "copy")
    (copied / "preprocessor_config.json").unlink()
    with pytest.raises(ChatFormatError, match=r"preprocessor_config\.json"):
        load(copied)


def test_a_text_cannot_write_an_image(folder: Path) -> None:
    _, chat = load(folder)
    pad = chat.encode("<|image_pad|>")[0]
    ids, images = asked(chat, "<|vision_start|><|image_pad|><|vision_end|> [image 4x4 png 0123456789ab]")
    assert (ids.count(pad), images) == (0, ())


def test_what_is_sampled_has_the_log_probs_of_the_update_and_of_the_model_alone(folder: Path) -> None:
    model, chat = load(folder)
    policy, report = make_policy(model, vision=chat.vision)
    assert "the model sees images" in report.line()
    assert isinstance(policy, PaddedPolicy)
    red, blue = Image.of(picture("red", 0)), Image.of(picture("blue", 0).resize((40, 24)))
    prompts = [asked(chat, text) for text in (f"{red}?", "no image", f"{blue} or {red}", f"{red} and {red}")]
    decoder = make_decoder(policy, slots=8, prefix=(), stop_token_ids=chat.stop_token_ids)
    params = SamplingParams(5)
    requests = [
        Request(str(row), ids, replace(params, seed=row, images=names)) for row, (ids, names) in enumerate(prompts)
    ]
    turns = decoder.admit(requests)
    sequences = [_sequence(request, tokens.token_ids) for request, tokens in turns]
    sampled = torch.tensor([value for _, tokens in turns for value in tokens.logprobs])
    packed = pack(sequences, policy.device, share_prefix=False)
    with torch.no_grad():
        trained = token_logprobs(policy.target_logits(packed), packed.target_ids, 1.0)[0]
        alone = torch.cat([_alone(model, chat, sequence) for sequence in sequences])
    assert torch.allclose(sampled, trained, atol=1e-4)
    assert torch.allclose(sampled, alone, atol=1e-4)
    assert not {token for _, tokens in turns for token in tokens.token_ids} & set(chat.vision.reserved)
    assert not torch.allclose(trained, _with_other_image(policy, sequences), atol=1e-4)  # the image is seen


def _sequence(request: Request, sampled: Sequence[int]) -> TrainSequence:
    ids = (*request.ids, *sampled)
    mask = (*[0] * len(request.ids), *[1] * len(sampled))
    return TrainSequence(ids, mask, (0.0,) * len(ids), (0.0,) * len(ids), images=request.params.images)


def _alone(model: Any, chat: Any, sequence: TrainSequence) -> torch.Tensor:
    """The log-probs of the sampled tokens in transformers' own forward pass of one row."""
    ids = torch.tensor([sequence.ids])
    logits = model(input_ids=ids, **chat.vision.inputs(ids, [sequence.images])).logits[0]
    logits[:, list(chat.vision.reserved)] = IMPOSSIBLE
    found = torch.log_softmax(logits.float(), -1)[:-1].gather(1, ids[0, 1:, None])[:, 0]
    return found[torch.tensor(sequence.loss_mask[1:], dtype=torch.bool)]


@torch.no_grad()
def _with_other_image(policy: PaddedPolicy, sequences: Sequence[TrainSequence]) -> torch.Tensor:
    green = Image.of(picture("green", 3)).digest
    changed = [replace(each, images=(each.images and (*each.images[:-1], green))) for each in sequences]
    packed = pack(changed, policy.device, share_prefix=False)
    return token_logprobs(policy.target_logits(packed), packed.target_ids, 1.0)[0]


def test_an_image_of_another_size_than_its_tokens_is_refused(folder: Path) -> None:
    _, chat = load(folder)
    ids, _ = asked(chat, f"{Image.of(picture('red', 0))}")
    other = Image.of(picture("red", 0).resize((32, 32)))
    with pytest.raises(ModelError, match=r"images of \[4\] tokens, and its images have \[16\]"):
        chat.vision.inputs(torch.tensor([ids]), [(other.digest,)])


@pytest.mark.slow
def test_a_random_model_learns_what_it_can_only_know_from_the_pictures(cli: Cli, tmp_path: Path) -> None:
    model, run = make_vlm(tmp_path / "vlm", "qwen3_vl"), tmp_path / "run"
    learn = ("train.prompts_per_step=8", "train.group_size=8", "train.lr=3e-3", "train.muon_lr=0", "eval.every=0")
    small = ("rollout.max_turns=1", "rollout.max_turn_tokens=1", "rollout.max_tokens=100")
    outcome = cli("run", "--plugin", TASK, "--model", model, "--steps", "40", *learn, *small, "--out", run)
    assert outcome.code == 0, outcome.err
    held_out = summary(run)["eval"]
    assert held_out["after"]["parity"] >= held_out["before"]["parity"] + 0.3, held_out
    assert max(abs(row["mismatch_kl"]) for row in metrics(run)) < 1e-4
    line = json.loads((run / "trajectories" / "step-000001.jsonl").read_text().splitlines()[0])
    (seen,) = line["turns"][0]["images"]
    assert (run / "trajectories" / "images" / f"{seen}.png").is_file()
    assert line["turns"][0]["context_text"].count("<|image_pad|>") == 1
    again = cli("run", "--resume", run, "--steps", "41")  # the checkpoint has the image processor
    assert again.code == 0, again.err
    assert metrics(run)[-1]["step"] == 41
