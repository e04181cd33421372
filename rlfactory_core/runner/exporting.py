"""Exports a run's model for other programs, and proves that the copy answers as the run's model does."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlfactory_core.chat.settings import ChatConfig
from rlfactory_core.engines.adapters import CONFIG as ADAPTER_CONFIG
from rlfactory_core.engines.adapters import WEIGHTS as ADAPTER_WEIGHTS
from rlfactory_core.engines.adapters import read_adapter
from rlfactory_core.engines.base import MakeChat
from rlfactory_core.errors import DataError, ModelError, UsageError
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.reporting.progress import Progress
from rlfactory_core.runner.hub import model_card, push
from rlfactory_core.runner.making import make_chat
from rlfactory_core.runner.models import checkpoint_of
from rlfactory_core.settings import validate_section

EXPORTS = "exports"  # the folder within the run's
KINDS = ("folder", "adapter", "gguf", "ollama", "hub")
PROMPTS = 4  # by which a copy is proved
_FILES = ("gguf", "ollama")  # kinds with a GGUF file
_ADAPTER = "adapter"  # in a checkpoint's folder
_NEAR_TIE = {
    # log-probability by which a copy may prefer another token: of float32, the rounding of other sums
    "f32": 0.001,
    "f16": 0.05,
    "bf16": 0.2,
    "q8_0": 0.5,
}
_OTHER_BASE = (
    "warning: the adapter was trained beside its base in 4 bits, and answers otherwise beside the base as it is. Load "
    'the base with BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4"), or export with --to folder, where '
    "both are merged."
)


@dataclass(frozen=True, slots=True)
class Export:
    """What is exported.

    Args:
        run: its folder, or its name under ``runs/``.
        to: one of `KINDS`.
        out: the folder or file to write; None: in the run's folder.
        checkpoint: see `checkpoint_of`.
        quantization: of a GGUF file.
        repo: on the hub.
    """

    run: str
    to: str
    out: Path | None = None
    checkpoint: str = ""
    quantization: str = ""
    repo: str = ""
    public: bool = False
    device: str = "auto"


@dataclass(frozen=True, slots=True)
class Exported:
    """Where a copy is, and how it was proved."""

    place: str  # a folder, a file or an address
    checkpoint: Path
    proof: str
    warning: str = ""  # what a server does otherwise than the training


def export_run(export: Export, progress: Progress) -> Exported:
    """Make the copy beside its place, prove it, and only then put it there.

    Raises:
        UsageError: the run, the checkpoint or an option is wrong, or the place is taken.
        ModelError: the model cannot be written in this form, or the copy does not answer as the run's model.
        MissingExtraError: a package is not installed.
        BackendError: the hub does not answer, or refuses.
    """
    _check(export)
    run = RunFolder.open(export.run)
    checkpoint = checkpoint_of(run, export.checkpoint)
    place = _place(export, run)
    progress.say(f"checkpoint {checkpoint}")
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=f".{place.name}-") as temporary:
        made = Path(temporary) / "copy"
        made.mkdir()
        progress.stage(f"write {export.to}")
        _MAKE[export.to](export, run, checkpoint, made)
        proof = _proved(export, run, checkpoint, made, progress)
        if export.to == "hub":
            progress.stage(f"push to {export.repo}")
            address = push(made, export.repo, private=not export.public)
            return Exported(address, checkpoint, proof, _warning(export, run, checkpoint, made))
        warning = _warning(export, run, checkpoint, made)
        # Of a GGUF file alone, no folder.
        (next(made.glob("*.gguf")) if export.to == "gguf" else made).rename(place)
    return Exported(str(place), checkpoint, proof, warning)


def _check(export: Export) -> None:
    if export.quantization and export.to not in _FILES:
        raise UsageError(f"--quantize is of a GGUF file: add --to gguf or --to ollama, and not --to {export.to}.")
    if (export.to == "hub") != bool(export.repo) or (export.public and not export.repo):
        raise UsageError("--to hub needs --repo ORGANISATION/NAME, and --repo and --public are for --to hub alone.")
    if export.to == "hub" and export.out is not None:
        raise UsageError("--to hub writes no files here: leave --out out, or export with --to folder.")


def _place(export: Export, run: RunFolder) -> Path:
    default = {"gguf": f"{run.name}-{_quantization(export)}.gguf"}.get(export.to, export.to)
    place = export.out or run.path / EXPORTS / default
    if export.to == "gguf" and place.suffix != ".gguf":
        raise UsageError(f"--out {place}: a GGUF file ends in .gguf")
    if place.exists():
        raise UsageError(f"{place} exists. Remove it, or choose another place with --out.")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write to {place.parent}: {error.strerror}. Choose another --out.") from error
    return place


def _quantization(export: Export) -> str:
    return export.quantization or "f16"


def _copy_folder(export: Export, run: RunFolder, checkpoint: Path, made: Path) -> None:
    for path in checkpoint.iterdir():
        if path.is_file() and not path.name.startswith("."):
            shutil.copyfile(path, made / path.name)
    (made / "README.md").write_text(model_card(run, checkpoint), encoding="utf-8")


def _copy_adapter(export: Export, run: RunFolder, checkpoint: Path, made: Path) -> None:
    source = checkpoint / _ADAPTER
    if not source.is_dir():
        raise ModelError(
            f"{checkpoint} has no adapter: the run trained all weights. Adapters are trained with train.lora.rank=16; "
            "export this run with --to folder."
        )
    for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS):
        shutil.copyfile(source / name, made / name)
    for path in checkpoint.iterdir():  # what servers read beside an adapter
        if path.name.startswith(("tokenizer", "chat_template", "special_tokens")):
            shutil.copyfile(path, made / path.name)


def _write_file(export: Export, run: RunFolder, checkpoint: Path, made: Path) -> None:
    from rlfactory_core.engines.gguf.writing import write_gguf

    write_gguf(checkpoint, made / "model.gguf", _quantization(export))


def _write_ollama(export: Export, run: RunFolder, checkpoint: Path, made: Path) -> None:
    from rlfactory_core.engines.local.model.loading import load_tokenizer
    from rlfactory_core.runner.modelfile import modelfile

    chat = _make_chat(run)(load_tokenizer(str(checkpoint)))
    text = modelfile(chat, run.read_config())  # which may refuse, before anything costly
    _write_file(export, run, checkpoint, made)
    (made / "Modelfile").write_text(text, encoding="utf-8")


_MAKE: dict[str, Callable[[Export, RunFolder, Path, Path], None]] = {
    "folder": _copy_folder,
    "adapter": _copy_adapter,
    "gguf": _write_file,
    "ollama": _write_ollama,
    "hub": _copy_folder,
}


def _make_chat(run: RunFolder) -> MakeChat:
    return make_chat(validate_section(ChatConfig, run.read_config().get("chat") or {}, "chat"), Registry())


def _warning(export: Export, run: RunFolder, checkpoint: Path, made: Path) -> str:
    base = _OTHER_BASE if export.to == _ADAPTER and read_adapter(made).lora.get("base_bits") else ""
    return "\n".join(filter(None, (base, "" if export.to == "ollama" else _template_warning(run, checkpoint))))


def _template_warning(run: RunFolder, checkpoint: Path) -> str:
    """A sentence if servers, which know the chat template alone, would leave tools or calls out."""
    from rlfactory_core.engines.local.model.loading import load_tokenizer

    abilities = getattr(_make_chat(run)(load_tokenizer(str(checkpoint))), "abilities", None)
    lacks = [name for name in ("tools", "calls") if abilities is not None and not getattr(abilities, name)]
    if not lacks:
        return ""
    return (
        f"warning: the model's chat template does not write {' and '.join(lacks)}: the run's chat format has put them "
        "into messages. A server knows the chat template alone, and leaves them out of its prompts; `rlfactory play`, "
        "`rlfactory eval` and the template of --to ollama write them as in training."
    )


def _proved(export: Export, run: RunFolder, checkpoint: Path, made: Path, progress: Progress) -> str:
    """Compare the copy with the run's model; raises a `ModelError` if it answers otherwise."""
    from rlfactory_core.engines import quiet_transformers
    from rlfactory_core.engines.gguf.reading import unpack
    from rlfactory_core.engines.local.copies import agreement, check_tokenizer, greedy_answers, load_copy

    prompts = _prompts(run)
    progress.stage("the run's model answers")
    answers = greedy_answers(checkpoint, prompts, _make_chat(run), export.device, progress)
    progress.stage("the copy answers")
    with tempfile.TemporaryDirectory(dir=made.parent) as temporary:
        loaded = made
        if export.to in _FILES:
            loaded = Path(temporary)
            with quiet_transformers():
                unpack(made / "model.gguf", loaded, Progress())
        check_tokenizer(loaded, checkpoint, prompts)
        found = agreement(load_copy(loaded, export.device), answers)
    most = _NEAR_TIE[_quantization(export) if export.to in _FILES else _saved(checkpoint, export.to, made)]
    if not found.gap <= most:
        raise ModelError(
            f"The copy does not answer as the run's model: it prefers another token at {found.other} of {found.tokens} "
            f"places, by up to {found.gap:.3g} nats; at most {most:g} can be rounding. Nothing was written. Please "
            "report this, with the type of the model."
        )
    return found.line(_library(export))


def _saved(checkpoint: Path, to: str, made: Path) -> str:
    """How exact a copy of a checkpoint can be: its weights, in which an adapter is merged, may be rounded.

    bitsandbytes multiplies with a base in 4 bits in bfloat16 on some CPUs.
    """
    if to == _ADAPTER and read_adapter(made).lora.get("base_bits"):
        return "bf16"
    import json

    config: dict[str, Any] = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    return "bf16" if to == _ADAPTER and config.get("dtype", "float32") != "float32" else "f32"


def _library(export: Export) -> str:
    from importlib.metadata import version

    read = {"adapter": ("peft",), "gguf": ("transformers", "gguf"), "ollama": ("transformers", "gguf")}
    names = read.get(export.to, ("transformers",))
    return " with ".join(f"{name} {version(name)}" for name in names)


def _prompts(run: RunFolder) -> list[tuple[int, ...]]:
    """The ids of some held-out prompts as the run's attempts have them; of the training, if there are no others."""
    files: list[int | str] = ["eval-after", "eval-before", *reversed(run.trajectory_steps())]
    for file in files:
        found: dict[str, tuple[int, ...]] = {}
        for stored in run.read_trajectories(file):
            first = next(iter(stored.trajectory.turns), None)
            if first is not None and first.context_ids and not first.images:
                found.setdefault(stored.trajectory.sample.id, first.context_ids)
            if len(found) == PROMPTS:
                break
        if found:
            return list(found.values())
    raise DataError(
        f"{run.path} has no stored attempt with token ids and without images, by whose prompt a copy could be proved. "
        f"The folder {run.checkpoints / 'latest'} can be copied as it is."
    )
