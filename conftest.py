"""Settings of all tests here, so that none depends on how fast the machine is or on how pytest was started."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

if find_spec("hypothesis"):  # not all plugins' tests use it
    from hypothesis import HealthCheck, settings

    settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("any machine")

# Tests run in several processes, and their models are tiny: more threads for a multiplication only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A model of the hub that is not here is missed at once, not after five attempts to reach the hub.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

# A shell's background job ignores Ctrl-C, and what it starts does, too: tests send it to processes of their own.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """A run in this process sets how many threads torch uses; the next test begins with the number from above."""
    yield
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
