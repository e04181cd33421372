"""The estimate of a run's memory: what it counts, and how it compares with what an update takes."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import transformers
from rlfactory_verl.memory import memory as verl_memory

from rlfactory_core.algo.settings import LoraConfig
from rlfactory_core.config import RunConfig
from rlfactory_core.engines.local.memory import memory as local_memory
from rlfactory_core.engines.local.memory import model_size
from rlfactory_core.engines.memory import MemoryPhase, ModelShape, ModelSize
from rlfactory_core.errors import ModelError

TOKENS = 2048
FREE = 4 * 2**30
SHAPE = {
    **{"hidden_size": 256, "num_hidden_layers": 8, "intermediate_size": 1024, "vocab_size": 8192},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "tie_word_embeddings": True},
}
MEASURE = """
import re, sys
from pathlib import Path
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from rlfactory_core.engines.local.model.loading import make_policy
from rlfactory_core.engines.local.model.pack import pack
from rlfactory_core.algo.losses import LossOptions
from rlfactory_core.engines.local.learning.optimizer import Optimizer, OptimizerOptions
from rlfactory_core.engines.local.learning.learner import Learner
from rlfactory_core.engines.local.workers import Workers
from rlfactory_core.types import TrainSequence

folder, tokens = sys.argv[1], int(sys.argv[2])
torch.set_num_threads(1)
# Not ru_maxrss, which begins with that of the process that has started this one.
peak = lambda: 1024 * int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
torch.ones(64, 64, requires_grad=True).matmul(torch.ones(64, 64)).sum().backward()  # loads the kernels
before = peak()
model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
learner = Learner(
    make_policy(model)[0], Optimizer(model, OptimizerOptions(1e-3)), Workers(), LossOptions()
)
row = tokens // 8
mask = (0,) + (1,) * (row - 1)
rows = [TrainSequence(tuple(range(n, n + row)), mask, (1.0,) * row, (-1.0,) * row) for n in range(8)]
packed = pack(rows, torch.device("cpu"), share_prefix=True)
for _ in range(2):
    assert learner.step([packed]).taken
print(peak() - before)
"""
GROWTH = """
import random, re, sys
from pathlib import Path
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from rlfactory_core.engines.local.decoding.decoder import Request, SlotDecoder
from rlfactory_core.engines.local.learning.learner import Learner
from rlfactory_core.engines.local.learning.optimizer import Optimizer, OptimizerOptions
from rlfactory_core.engines.local.model.half import bfloat16_flag, compute_in_bfloat16
from rlfactory_core.engines.local.model.onednn import keep_few_kernels
from rlfactory_core.engines.local.model.policy import RaggedPolicy
from rlfactory_core.engines.local.workers import Workers
from rlfactory_core.algo.losses import LossOptions
from rlfactory_core.types import SamplingParams, TrainBatch, TrainSequence
from rlfactory_core.utils.memory import return_memory

torch.set_num_threads(1)
keep_few_kernels()
held = lambda: 1024 * int(re.search(r"VmRSS:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(sys.argv[1])).eval()
policy = RaggedPolicy(model)
if bfloat16_flag():  # elsewhere it is emulated, which takes minutes
    compute_in_bfloat16(model)
learner = Learner(policy, Optimizer(model, OptimizerOptions(1e-3)), Workers(), LossOptions())
decoder = SlotDecoder(policy, slots=16, prefix=None, stop_token_ids=())
rng, after = random.Random(0), []
for step in range(12):
    prompts = [tuple(rng.randrange(8000) for _ in range(rng.randint(20, 120))) for _ in range(4)]
    waiting = [
        Request(f"{step}-{number}-{each}", prompt, SamplingParams(rng.randint(8, 24), seed=each))
        for number, prompt in enumerate(prompts)
        for each in range(4)
    ]
    done = decoder.admit(decoder.admissible(waiting))
    while decoder.active:
        done += decoder.step()
    rows = []
    for request, sampled in done:
        decoder.release(request.session)
        new, old = len(sampled.token_ids), len(request.ids)
        mask = (0,) * old + (1,) * new
        weights = tuple(rng.uniform(-1, 1) * each for each in mask)
        rows.append(TrainSequence(request.ids + sampled.token_ids, mask, weights, (0.0,) * old + sampled.logprobs))
    assert learner.step(learner.pack(TrainBatch(tuple(rows)))).taken
    decoder.weights_changed(step + 1)
    return_memory()
    after.append(held())
print(*after)
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The configuration of a model of 10 million parameters, without weights."""
    folder = tmp_path_factory.mktemp("model")
    transformers.Qwen3Config(**SHAPE).save_pretrained(folder)
    return folder


def sizes(phase: MemoryPhase) -> dict[str, int]:
    return {part.what: part.size for part in phase.parts}


def config(**train: object) -> RunConfig:
    sections = {"train": {"microbatch_tokens": TOKENS, **train}, "rollout": {"max_tokens": TOKENS, "slots": 4}}
    return RunConfig.model_validate({"plugin": "tools", "device": "cpu", **sections})


def test_the_size_is_that_of_the_configuration(model: Path) -> None:
    size = model_size(str(model))
    layer = 256 * 256 * 2 + 2 * 256 * 128 + 3 * 256 * 1024 + 2 * 256 + 2 * 64
    parameters = 8192 * 256 + 8 * layer + 256
    linear = 8 * (256 * 256 * 2 + 2 * 256 * 128 + 3 * 256 * 1024)
    assert size == ModelSize(parameters, parameters, linear, ModelShape(8, 256, 1024, 256, 128, 8192))
    lora = model_size(str(model), LoraConfig(rank=2, targets="q_proj,k_proj"))
    assert lora.trained == 8 * 2 * (256 + 256 + 256 + 128)
    every = 2 * (256 + 256) + 2 * (256 + 128) + 3 * (256 + 1024)
    assert model_size(str(model), LoraConfig(rank=2)).trained == 8 * 2 * every
    with pytest.raises(ModelError, match="There is no model folder '/no/model'"):
        model_size("/no/model")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells the peak")
def test_an_update_takes_about_what_is_estimated(model: Path) -> None:
    words = [sys.executable, "-c", MEASURE, str(model), str(TOKENS)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    (phase,) = local_memory(config(), model_size(str(model)), FREE)
    found = sizes(phase)
    estimate = sum(found[what] for what in ("weights", "gradients", "optimizer", "activations", "logits"))
    assert 0.6 * estimate < int(done.stdout) < 1.6 * estimate


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells what is held")
def test_memory_does_not_grow_from_step_to_step(model: Path) -> None:
    done = subprocess.run([sys.executable, "-c", GROWTH, str(model)], capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    _, _, third, *later = map(int, done.stdout.split())
    assert max(later) < 1.1 * third


def test_what_the_keys_change(model: Path) -> None:
    size = model_size(str(model))
    (base,) = local_memory(config(), size, FREE)
    (checkpointed,) = local_memory(config(gradient_checkpointing=True), size, FREE)
    assert sizes(checkpointed)["activations"] < sizes(base)["activations"] / 5
    (with_kl,) = local_memory(config(kl=0.1), size, FREE)
    assert sizes(with_kl)["start model"] == 4 * size.parameters
    (taught,) = local_memory(config(method="opd", teacher=str(model)), size, FREE)
    assert sizes(taught)["teacher"] == 4 * size.parameters
    for keys in ({"teacher": "http://127.0.0.1:8000/v1"}, {"teacher": str(model), "teacher_device": "cuda:1"}):
        (elsewhere,) = local_memory(config(method="opd", **keys), size, FREE)
        assert sizes(elsewhere) == sizes(base)
    (adapters,) = local_memory(config(kl=0.1, lora={"rank": 2}), replace(size, trained=1000), FREE)
    assert "start model" not in sizes(adapters)
    assert sizes(adapters)["gradients"] == 4000
    (critic,) = local_memory(config(kl=0.1, advantage="gae"), size, FREE)
    assert sizes(critic)["critic"] == 12 * size.parameters
    (critic,) = local_memory(config(advantage="gae", lora={"rank": 2}), replace(size, trained=1000), FREE)
    assert sizes(critic)["critic"] == 4 * size.parameters + 8000
    small, loading = local_memory(config(lora={"rank": 2, "base_bits": 4}), replace(size, trained=1000), FREE)
    assert sizes(small)["weights"] == size.linear * 9 // 16 + 4 * (size.parameters - size.linear)
    assert sizes(loading)["weights"] == 4 * size.parameters
    training, step = local_memory(config().model_copy(update={"dtype": "bfloat16"}), size, FREE)
    assert sizes(training)["optimizer"] == sizes(step)["optimizer"] == 12 * size.parameters
    assert sizes(step)["gradients"] == 4 * size.parameters
    assert "activations" not in sizes(step)
    assert sizes(base)["keys and values"] == 2 * 8 * 128 * TOKENS * 4 * 4
    assert base.fits
    assert replace(base, limit=base.total - 1).fits is False


def test_gpus_share_what_verl_trains(model: Path) -> None:
    size = model_size(str(model))

    def training(**keys: object) -> dict[str, int]:
        chosen = config().model_copy(update={"engine": "verl", "plugins": {"verl": keys}})
        return sizes(verl_memory(chosen, size, None)[0])

    assert training(gpus=1)["optimizer"] == 8 * size.parameters
    assert training(gpus=4, nodes=2)["optimizer"] == size.parameters
    assert training(gpus=4, mode="separate_async")["weights"] == 2 * size.parameters
    assert training(gpus=4)["activations"] == training(gpus=1)["activations"]
