"""Linear layers through oneDNN compute what torch's own do."""

from __future__ import annotations

import copy
import os
from pathlib import Path

import pytest
import torch
from torch import nn

from rlfactory_core.engines.local.model import onednn

STATM = Path("/proc/self/statm")


@pytest.fixture
def _anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onednn, "_pays", lambda: True)
    monkeypatch.setattr(onednn, "SMALLEST", 0)
    if not onednn._agrees():
        pytest.skip("this torch has no such operator for this processor")


def _network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(24, 40), nn.SiLU(), nn.Linear(40, 7, bias=False))


@pytest.mark.usefixtures("_anywhere")
@pytest.mark.parametrize("shape", [(24,), (5, 24), (2, 3, 24)])
def test_values_and_gradients_are_those_of_torch(shape: tuple[int, ...]) -> None:
    plain = _network()
    fast = copy.deepcopy(plain)
    assert onednn.speed_up_linears(fast) == 2
    inputs = [torch.randn(shape).requires_grad_() for _ in range(2)]
    inputs[1].data.copy_(inputs[0].data)
    outputs = [plain(inputs[0]), fast(inputs[1])]
    torch.testing.assert_close(*outputs, rtol=1e-5, atol=1e-5)
    for output in outputs:
        output.square().sum().backward()
    torch.testing.assert_close(inputs[0].grad, inputs[1].grad, rtol=1e-4, atol=1e-4)
    for ours, theirs in zip(fast.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("_anywhere")
def test_frozen_weights_get_no_gradient_and_pass_one_on() -> None:
    network = _network().requires_grad_(False)
    onednn.speed_up_linears(network)
    x = torch.randn(5, 24, requires_grad=True)
    network(x).sum().backward()
    assert x.grad is not None
    assert all(parameter.grad is None for parameter in network.parameters())


@pytest.mark.usefixtures("_anywhere")
def test_a_copy_computes_with_its_own_weights() -> None:
    network = _network()
    onednn.speed_up_linears(network)
    clone = copy.deepcopy(network)
    with torch.no_grad():
        clone[0].weight.zero_()
    x = torch.randn(5, 24)
    assert not torch.equal(network(x), clone(x))


@pytest.mark.usefixtures("_anywhere")
def test_another_type_is_left_to_torch() -> None:
    network = _network()
    onednn.speed_up_linears(network)
    x = torch.randn(5, 24)
    assert network.double()(x.double()).dtype == torch.float64
    assert network.bfloat16()(x.bfloat16()).dtype == torch.bfloat16


@pytest.mark.usefixtures("_anywhere")
@pytest.mark.skipif(not STATM.exists(), reason="needs Linux's /proc")
def test_memory_does_not_grow_with_the_number_of_lengths() -> None:
    """Without padding these 300 lengths take some 300 MB, with it some 25."""
    torch.manual_seed(0)
    network = nn.Linear(72, 72)
    onednn.speed_up_linears(network)
    x = torch.randn(300, 72, requires_grad=True)
    network(x).sum().backward()
    before = _resident_bytes()
    for rows in range(1, 301):
        network(x[:rows]).sum().backward()
    assert _resident_bytes() - before < 100e6


def _resident_bytes() -> int:
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_nothing_is_touched_where_it_does_not_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onednn, "_pays", lambda: False)
    network = _network()
    assert onednn.speed_up_linears(network) == 0
    assert "forward" not in vars(network[0])
