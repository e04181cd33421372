"""LoRA through peft: frozen weights, small trained adapters inside the model, exported merged.

The model keeps its class, so the ragged forward runs through the adapters as through any linear layer. The start model
of the KL term is the same model with its adapters switched off.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rlfactory_core.algo.settings import LoraConfig
from rlfactory_core.engines.adapters import PREFIX, WEIGHTS
from rlfactory_core.engines.local.model.four_bits import FourBitLinear
from rlfactory_core.engines.local.model.half import forget_rounded
from rlfactory_core.engines.local.model.pack import Packed
from rlfactory_core.engines.local.model.policy import Policy
from rlfactory_core.errors import ConfigError, MissingExtraError, ModelError

_MATRICES = ("lora_A", "lora_B", "lora_embedding_A", "lora_embedding_B")  # of a layer of PEFT


def add_lora(model: Any, config: LoraConfig, seed: int = 0) -> Any:
    """Freeze the weights and train low-rank adapters (Hu et al. 2021, arXiv 2106.09685), initialised from ``seed``.

    Returns:
        The same model, changed in place; its outputs are unchanged until the adapters are trained.

    Raises:
        MissingExtraError: peft is not installed.
        ConfigError: ``train.lora.targets`` names no layer of this model.
    """
    try:
        from peft import LoraConfig as PeftConfig
        from peft import inject_adapter_in_model
    except ImportError as error:
        raise MissingExtraError(
            "LoRA needs peft, which is not installed: pip install 'rlfactory-core[lora]'"
        ) from error
    targets = [name.strip() for name in config.targets.split(",")]
    options = PeftConfig(
        r=config.rank,
        lora_alpha=config.alpha,
        lora_dropout=config.dropout,
        target_modules="all-linear" if targets == ["all-linear"] else targets,
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        try:
            return inject_adapter_in_model(options, model)
        except ValueError as error:
            raise ConfigError(
                f"train.lora.targets={config.targets}: {str(error).strip().splitlines()[0]} Name layers of the model, "
                "separated by commas, or 'all-linear'."
            ) from error


def adapter_weights(model: Any) -> dict[str, Tensor]:
    """Copies of the trained adapters on the CPU; empty for a model without adapters."""
    if not any(_layers(model)):
        return {}
    return {name: p.detach().cpu().clone() for name, p in model.named_parameters() if p.requires_grad}


def adapter_start(folder: str) -> dict[str, Tensor]:
    """The weights in a folder of PEFT, by the names that `adapter_weights` gives them.

    Raises:
        ModelError: the file is missing or damaged.
    """
    from safetensors.torch import load_file

    try:
        weights = load_file(Path(folder) / WEIGHTS)
    except Exception as error:  # a damaged file can raise any error
        raise ModelError(f"The adapter in '{folder}' cannot be read: {error}. Copy it again.") from error
    names = (name.removeprefix(PREFIX).rpartition(".weight")[0] for name in weights)
    return {f"{name}.default.weight": tensor for name, tensor in zip(names, weights.values(), strict=True)}


@torch.no_grad()
def load_adapter_weights(model: Any, weights: Mapping[str, Tensor]) -> None:
    """Put the copies of `adapter_weights` into a model with the same adapters.

    Raises:
        ConfigError: the copies belong to other adapters.
    """
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    ours = {name: tuple(p.shape) for name, p in trained.items()}
    theirs = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    if ours != theirs:
        raise ConfigError(
            f"The checkpoint holds {len(theirs)} adapter tensors that do not fit the {len(ours)} of this run: rank, "
            "targets or the model have changed. Set train.lora and model as they were in the run's config.yaml, or in "
            "the adapter's configuration."
        )
    for name, p in trained.items():
        p.copy_(weights[name])


@torch.no_grad()
def merged_state_dict(model: Any) -> dict[str, Tensor] | None:
    """The weights with the adapters merged in, under a plain model's names; None for a model without adapters.

    The live model does not change: adapted layers are copied and merged one at a time.
    """
    adapted = dict(_layers(model))
    if not adapted:
        return None
    changed = adapted | {name: module for name, module in model.named_modules() if isinstance(module, FourBitLinear)}
    outermost = [path for path in changed if not path.startswith(tuple(f"{other}." for other in changed))]
    inside = tuple(f"{path}." for path in outermost)
    merged = {name: tensor for name, tensor in model.state_dict().items() if not name.startswith(inside)}
    for path in outermost:
        layer = _plain(copy.deepcopy(changed[path]))
        merged |= {f"{path}.{name}": tensor.cpu() for name, tensor in layer.state_dict().items()}
    return merged


def _plain(layer: Any) -> nn.Module:
    """The layer with its adapters merged into its weights; 4-bit ones are de-quantised before."""
    if isinstance(layer, FourBitLinear):
        return layer.plain()
    for _, part in _layers(layer):
        if isinstance(part.base_layer, FourBitLinear):
            part.base_layer = part.base_layer.plain()
        part.merge()
    base: nn.Module = layer.get_base_layer()
    return base


class StartPolicy(Policy):
    """The model before its adapters were trained, as the KL term's reference; needs no second copy."""

    def __init__(self, policy: Policy) -> None:
        self.policy, self.kind, self.model = policy, policy.kind, policy.model

    def target_logits(self, packed: Packed) -> Tensor:
        layers = [layer for _, layer in _layers(self.model)]
        for layer in layers:
            layer.enable_adapters(enabled=False)
        try:
            return self.policy.target_logits(packed)
        finally:
            for layer in layers:
                layer.enable_adapters(enabled=True)  # which also makes them trainable again


class EarlierPolicy(Policy):
    """The model with its adapters as they were, as the KL term's reference; only the adapters are copied.

    Args:
        weights: by the names that `adapter_weights` gives them.
    """

    @torch.no_grad()
    def __init__(self, policy: Policy, weights: Mapping[str, Tensor]) -> None:
        self.policy, self.kind, self.model = policy, policy.kind, policy.model
        self._others: list[tuple[Any, str, Any]] = []  # where adapters are, their name, and what they were
        for path, layer in _layers(self.model):
            for kind in _MATRICES:
                for name, part in getattr(layer, kind).items():
                    before = copy.deepcopy(part).requires_grad_(requires_grad=False)
                    forget_rounded(before)
                    own = before.named_parameters() if isinstance(before, nn.Module) else [("", before)]
                    for key, parameter in own:
                        parameter.copy_(weights[".".join(filter(None, (path, kind, name, key)))])
                    self._others.append((getattr(layer, kind), name, before))
            self._others += [(layer.lora_dropout, name, nn.Identity()) for name in layer.lora_dropout]

    def target_logits(self, packed: Packed) -> Tensor:
        self._swap()
        try:
            return self.policy.target_logits(packed)
        finally:
            self._swap()

    def _swap(self) -> None:
        now = [held[name] for held, name, _ in self._others]
        for held, name, other in self._others:
            held[name] = other
        self._others = [(held, name, part) for (held, name, _), part in zip(self._others, now, strict=True)]


def _layers(model: Any) -> Iterator[tuple[str, Any]]:
    for name, module in model.named_modules():
        if hasattr(module, "base_layer") and hasattr(module, "get_delta_weight"):
            yield name, module
