"""Tests on the loaded model whether its ragged forward equals its own eager forward.

Some families are silently wrong without padding (state spaces, linear attention, ALiBi, offset positions, chunks and
convolutions), and no list of architectures is complete. So the probe compares prefixes, prefill, decode and a training
pass with its gradient, on sequences longer than any attention window or chunk that the run can reach.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rlfactory_core.engines.local.model.kv_cache import Above, Cache
from rlfactory_core.engines.local.model.logprobs import token_logprobs
from rlfactory_core.engines.local.model.pack import SHORTEST, pack
from rlfactory_core.engines.local.model.plans import DecodePlan, PrefillPlan
from rlfactory_core.engines.local.model.policy import PaddedPolicy, RaggedPolicy
from rlfactory_core.types import TrainSequence

TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.15, torch.float16: 0.05}  # of log-probs, the worst token
PREFIX, DECODED = 24, 4


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """Errors are the worst over all tokens: of log-probs (nats), and of the gradient relative to its largest entry."""

    passed: bool
    reason: str = ""  # why it failed
    sampling_error: float = float("nan")
    training_error: float = float("nan")
    gradient_error: float = float("nan")

    def line(self) -> str:
        """The result in a sentence, for the user."""
        if self.passed:
            return f"ragged attention agrees with this model's own (log-probs within {self.sampling_error:.1e})"
        return f"padded attention is used, which is slower: {self.reason}"


def probe(model: Any, *, max_tokens: int = 4096) -> ProbeReport:
    """Leaves the model in its eager implementation.

    Args:
        max_tokens: the longest trajectory of the run; windows beyond it cannot matter.
    """
    sequences = _sequences(model, max_tokens)
    try:
        errors, limit = _errors_in_fp32(model, sequences)
    except Exception as error:  # noqa: BLE001 - foreign model code: whatever it raises, the padded forward remains
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        return ProbeReport(passed=False, reason=f"its forward pass fails with ours ({reason[:120]})")
    finally:
        model.set_attn_implementation("eager")
    worst = max(errors.values())
    passed = worst <= limit  # False for NaN
    reason = "" if passed else f"ours differs from its eager forward by {worst:.1e}, more than {limit:.0e}"
    return ProbeReport(passed, reason, **errors)


def _errors_in_fp32(model: Any, sequences: list[TrainSequence]) -> tuple[dict[str, float], float]:
    """The errors, and the tolerance for them.

    The rounding of half precision hides errors of some families, so the model is tested in fp32 and then restored bit
    by bit; if memory does not suffice for fp32, it is tested in its own precision.
    """
    tensors = (*model.parameters(), *model.buffers())
    dtypes = [(tensor, tensor.dtype) for tensor in tensors if tensor.is_floating_point()]
    try:
        for tensor, _ in dtypes:
            tensor.data = tensor.data.float()
        return _errors(model, sequences), TOLERANCE[torch.float32]
    except torch.OutOfMemoryError:
        pass
    finally:
        for tensor, dtype in dtypes:
            tensor.data = tensor.data.to(dtype)
    return _errors(model, sequences), TOLERANCE[next(model.parameters()).dtype]


def _errors(model: Any, sequences: list[TrainSequence]) -> dict[str, float]:
    model.set_attn_implementation("eager")
    reference, gradient = _training_pass(PaddedPolicy(model), [[sequence] for sequence in sequences])
    policy = RaggedPolicy(model)
    trained, trained_gradient = _training_pass(policy, [sequences])
    sampled = _sampling_pass(policy, sequences)
    return {
        "sampling_error": float((sampled - reference).abs().max()),
        "training_error": float((trained - reference).abs().max()),
        "gradient_error": float((trained_gradient - gradient).abs().max() / gradient.abs().max().clamp_min(1e-12)),
    }


def _sequences(model: Any, max_tokens: int) -> list[TrainSequence]:
    """Random ids: three sequences with a common prefix, behind which the last two also share a prompt.

    All tokens behind those but the first are targets.
    """
    config = model.config.get_text_config()
    windows = [getattr(config, name, None) for name in ("sliding_window", "attention_chunk_size", "conv_L_cache")]
    reach = max([32, *(w for w in windows if isinstance(w, int) and w < max_tokens)])
    limit = min(max_tokens, int(getattr(config, "max_position_embeddings", None) or max_tokens))
    longest = max(16, min(reach + 16, limit - PREFIX - 1))
    generator = torch.Generator().manual_seed(0)
    vocabulary = int(config.vocab_size)

    def ids(count: int) -> list[int]:
        return torch.randint(min(3, vocabulary - 1), vocabulary, (count,), generator=generator).tolist()

    prefix = ids(PREFIX)
    prompt = ids(SHORTEST if limit >= PREFIX + SHORTEST + 13 else 0)
    made = []
    for before, own in ((prefix, longest), ([*prefix, *prompt], 13), ([*prefix, *prompt], 9)):
        mask = [0] * (len(before) + 1) + [1] * (own - 1)
        weights = [0.0] * (len(before) + 1) + torch.randn(own - 1, generator=generator).tolist()
        made.append(TrainSequence((*before, *ids(own)), tuple(mask), tuple(weights), (0.0,) * len(mask)))
    return made


def _training_pass(policy: RaggedPolicy | PaddedPolicy, batches: list[list[TrainSequence]]) -> tuple[Tensor, Tensor]:
    """Log-probs of the targets, and the gradient of their weighted sum for the first matrix behind the embedding."""
    embedding, head = policy.model.get_input_embeddings().weight, policy.model.get_output_embeddings()
    outer = {id(embedding), id(getattr(head, "weight", None))}
    matrices = (p for p in policy.model.parameters() if p.ndim == 2 and p.requires_grad)
    # Behind the embedding, so all later layers contribute to its gradient. Layers of 4 bits have none.
    inner = next((p for p in matrices if id(p) not in outer), embedding)
    found, gradient = [], torch.zeros_like(inner, dtype=torch.float32)
    for sequences in batches:
        packed = pack(sequences, policy.device, share_prefix=True)
        logprobs, _ = token_logprobs(policy.target_logits(packed), packed.target_ids, 1.0)
        gradient += torch.autograd.grad((logprobs * packed.advantages).sum(), [inner])[0]
        found.append(logprobs.detach())
    return torch.cat(found), gradient


@torch.inference_mode()
def _sampling_pass(policy: RaggedPolicy, sequences: list[TrainSequence]) -> Tensor:
    """The same log-probs through prefix, prompt, prefill and decode, the last `DECODED` tokens of each one by one."""
    device = policy.device
    longest = max(len(sequence.ids) for sequence in sequences)
    cache, shared = Cache(len(sequences), longest), Cache(1, PREFIX)
    rows = torch.arange(len(sequences), device=device)
    nothing = torch.zeros_like(rows)
    prefix = torch.tensor(sequences[0].ids[:PREFIX], device=device)
    first = PrefillPlan(shared, rows[:1], nothing[:1], [PREFIX])
    policy.forward(prefix, first.positions, first, first.last)
    above = [Above(shared, nothing, nothing + PREFIX)]
    starts = [sequence.loss_mask.index(1) - 1 for sequence in sequences]
    if prompt := sequences[-1].ids[PREFIX : starts[-1]]:
        prompts, having = (
            Cache(2, len(prompt)),
            torch.tensor([start > PREFIX for start in starts], device=device).long(),
        )
        second = PrefillPlan(
            prompts, rows[1:2], nothing[:1], [len(prompt)], [Above(shared, rows[:1], nothing[:1] + PREFIX)]
        )
        policy.forward(torch.tensor(prompt, device=device), second.positions, second, second.last)
        above.append(Above(prompts, having, having * len(prompt)))
    own = [sequence.ids[start:] for sequence, start in zip(sequences, starts, strict=True)]
    heads = [len(ids) - DECODED for ids in own]
    plan = PrefillPlan(cache, rows, nothing, heads, above)
    flat = torch.tensor([token for ids, head in zip(own, heads, strict=True) for token in ids[:head]], device=device)
    prefilled = policy.forward(flat, plan.positions, plan, torch.arange(len(flat), device=device))
    logits = [[part] for part in prefilled.split(heads)]
    for offset in range(DECODED - 1):
        tokens = torch.tensor([ids[head + offset] for ids, head in zip(own, heads, strict=True)], device=device)
        decode = DecodePlan(cache, torch.tensor(heads, device=device) + offset, above)
        for row, new in enumerate(policy.forward(tokens, decode.positions, decode, rows)):
            logits[row].append(new[None])
    targets = torch.tensor([token for ids in own for token in ids[1:]], device=device)
    return token_logprobs(torch.cat([torch.cat(parts) for parts in logits]), targets, 1.0)[0]
