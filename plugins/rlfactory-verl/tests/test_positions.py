"""The positions of sequences with images in verl's batches. Nothing of verl is started."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

pytest.importorskip("verl", reason="the other engine")
import torch
from rlfactory_verl.positions import along_tokens
from tensordict import TensorDict

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("lengths", [(5, 6, 7), (5, 5, 5), (4, 4), (6,)])
def test_each_row_keeps_its_positions_whatever_the_lengths(lengths: Sequence[int]) -> None:
    """As TransferQueue packs them, and again after verl has cut the batch."""
    rows = [torch.randint(0, 99, (4, length)) for length in lengths]
    packed = torch.nested.as_nested_tensor(rows, layout=torch.jagged)
    data = TensorDict({"position_ids": packed}, batch_size=len(rows))
    for _ in range(2):
        along_tokens(data)
        found = data["position_ids"]
        assert [row.tolist() for row in found.unbind()] == [row.tolist() for row in rows]
        assert found.values().tolist() == torch.cat(rows, 1).tolist()
