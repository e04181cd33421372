"""Repairs verl 0.9.1's batches of sequences with images; every worker of such a run imports this (``external_lib``).

The positions of a sequence with images are a matrix, [4, tokens]. TransferQueue packs the matrices of a batch along the
dimension in which they differ. If all sequences of a batch are of the same length, none differs and it takes the first
one, and verl takes the second one as packed: it fails, or trains with wrong positions.
"""

from __future__ import annotations

import sys
from typing import Any

TOKENS = 2  # the dimension of a batch of matrices along which sequences differ


def along_tokens(data: Any) -> None:
    """Pack a batch's matrices of positions along the tokens, in place; replaces ``maybe_fix_3d_position_ids``."""
    from verl.utils.tensordict_utils import nested_tensor_from_tensor_list

    positions = data["position_ids"] if "position_ids" in data.keys() else None  # noqa: SIM118 - a TensorDict
    if positions is None or not positions.is_nested or positions.dim() != 3:
        return
    values, rows = positions.values(), positions.size(0)
    if int(positions.offsets()[-1]) == values.shape[1]:
        positions._ragged_idx = TOKENS  # it may have been lost on the way
    else:
        data["position_ids"] = nested_tensor_from_tensor_list(list(values.chunk(rows)), ragged_idx=TOKENS)


def _repair() -> None:
    workers: Any = sys.modules.get("verl.workers.engine_workers")
    if workers is None:  # a process that does not train
        return
    from verl.workers.engine.fsdp import transformer_impl

    prepare = transformer_impl.prepare_micro_batches
    if getattr(prepare, "along_tokens", False):
        return

    def prepare_micro_batches(data: Any, *args: Any, **options: Any) -> Any:
        along_tokens(data)
        return prepare(data, *args, **options)

    prepare_micro_batches.along_tokens = True  # type: ignore[attr-defined]
    transformer_impl.prepare_micro_batches = prepare_micro_batches
    workers.maybe_fix_3d_position_ids = along_tokens


_repair()
