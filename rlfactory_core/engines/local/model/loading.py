"""Models from a folder or the hub: loading, writing, and the choice between the ragged and the padded forward."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from rlfactory_core.engines.exports import NOWHERE, Origin, complete
from rlfactory_core.engines.gguf.reading import as_folder
from rlfactory_core.engines.local.model.half import FEWEST, bfloat16_flag
from rlfactory_core.engines.local.model.lora import merged_state_dict
from rlfactory_core.engines.local.model.policy import PaddedPolicy, Policy, RaggedPolicy
from rlfactory_core.engines.local.model.probe import ProbeReport, probe
from rlfactory_core.engines.settings import EngineSettings
from rlfactory_core.errors import ModelError
from rlfactory_core.images import sees_images
from rlfactory_core.protocols import Vision
from rlfactory_core.reporting.progress import Progress


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """transformers shows errors only and no progress bars until the end of the block."""
    from transformers.utils import logging

    bars, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def choose_device(name: str) -> torch.device:
    """``auto`` is the first GPU if there is one, else the CPU.

    Raises:
        ModelError: the named device does not exist.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise ModelError(f"Device '{name}' cannot be used: expected auto, cpu, cuda or cuda:N.")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise ModelError(f"Device '{name}' cannot be used: {reason}. Try --device cpu.") from error
    return device


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """``auto`` is bfloat16 on a GPU and float32 on the CPU."""
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return torch.float32 if name == "float32" else torch.bfloat16


def local_model(model: str, progress: Progress | None = None) -> str:
    """The folder or hub id that is loaded: a GGUF file is de-quantised into a folder of the cache, once.

    Raises:
        ModelError: the file is missing, damaged, or of a kind that is not read exactly.
        MissingExtraError: a package that reads it is not installed.
        DataError: the cache cannot be written.
    """
    with quiet_transformers():
        return as_folder(model, progress)


def chooses_bfloat16_products(config: EngineSettings, parameters: int) -> str | None:
    """The flag of the processor for which ``dtype=auto`` multiplies in bfloat16, see `half`; None: it does not."""
    if (
        config.dtype != "auto"
        or config.model is None
        or parameters < FEWEST
        or choose_device(config.device).type != "cpu"
    ):
        return None
    return bfloat16_flag()


def load_pretrained(model: str, device: torch.device, dtype: torch.dtype) -> tuple[Any, Any]:
    """A causal LM without dropout, and its tokenizer.

    Raises:
        ModelError: it cannot be found or read.
    """
    from transformers import AutoConfig, AutoTokenizer

    model = local_model(model)
    with _explained(model):
        config = AutoConfig.from_pretrained(model)
        for key in list(vars(config)):
            if key.endswith(("dropout", "pdrop")) and isinstance(getattr(config, key), float):
                setattr(config, key, 0.0)
        tokenizer = AutoTokenizer.from_pretrained(model)
        loaded = auto_class(config).from_pretrained(model, config=config, dtype=dtype)
    # Weights mapped from a file may lie at any address, and the CPU's kernels round differently by alignment. In
    # torch's own memory a loaded model computes the same as the saved one, to the last bit.
    for parameter in loaded.parameters():
        parameter.data = parameter.data.clone()
    return loaded.to(device).eval(), tokenizer


def write_model(folder: Path, model: Any, tokenizer: Any, origin: Origin = NOWHERE) -> None:
    """A Hugging Face folder: config, weights, tokenizer with its chat template; LoRA is merged into the weights."""
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder, state_dict=merged_state_dict(model))
    tokenizer.save_pretrained(folder)
    complete(folder, origin)


def checkpoint_activations(model: Any) -> None:
    """Training computes each layer again in its backward pass (Chen et al. 2016, arXiv 1604.06174)."""
    # Newer releases of transformers renamed it.
    enable = getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)
    enable({"use_reentrant": False})


def load_tokenizer(model: str) -> Any:
    """The tokenizer alone; raises as `load_pretrained`."""
    from transformers import AutoTokenizer

    model = local_model(model)
    with _explained(model):
        return AutoTokenizer.from_pretrained(model)


def make_empty(model: str) -> Any:
    """The model without memory for its weights, from its ``config.json`` alone; raises as `load_pretrained`."""
    from transformers import AutoConfig

    model = local_model(model)
    with _explained(model), torch.device("meta"):
        config = AutoConfig.from_pretrained(model)
        return auto_class(config).from_config(config)


def auto_class(config: Any) -> Any:
    """The class of transformers that loads the model of a configuration."""
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

    return AutoModelForImageTextToText if sees_images(config) else AutoModelForCausalLM


@contextmanager
def _explained(model: str) -> Iterator[None]:
    """Raises a `ModelError` if there is no such folder, or if the block raises."""
    if not Path(model).exists() and (model.startswith((".", "/")) or model.count("/") > 1):
        raise ModelError(f"There is no model folder '{model}'. Give a folder with config.json, or a hub id.")
    try:
        yield
    except Exception as error:  # a damaged file can raise any error
        if _without_hub(error):
            raise ModelError(
                f"The model '{model}' is not on this machine, and the hub cannot be reached. Give --model a folder; or "
                f"download it where there is a network (hf download {model} --local-dir FOLDER) and copy the folder."
            ) from error
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ModelError(f"The model '{model}' cannot be loaded: {reason}") from error


def _without_hub(error: BaseException | None) -> bool:
    """Whether a file was looked for in the cache only, since the hub could not be asked."""
    from huggingface_hub.errors import LocalEntryNotFoundError, OfflineModeIsEnabled

    while error is not None:
        if isinstance(error, (LocalEntryNotFoundError, OfflineModeIsEnabled)):
            return True
        error = error.__cause__ or error.__context__
    return False


def make_policy(model: Any, *, max_tokens: int = 4096, vision: Vision | None = None) -> tuple[Policy, ProbeReport]:
    """Ragged if the probe finds it equal to the model's own eager forward, else padded.

    Args:
        max_tokens: the longest trajectory of the run.
        vision: of a model that sees images, which is padded.
    """
    if vision is not None:
        return PaddedPolicy(model, vision), ProbeReport(passed=False, reason="the model sees images")
    report = probe(model, max_tokens=max_tokens)
    return (RaggedPolicy(model) if report.passed else PaddedPolicy(model)), report
