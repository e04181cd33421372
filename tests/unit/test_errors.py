"""Errors keep what they know."""

from __future__ import annotations

import pickle

from rlfactory_core.errors import BackendError, VerifierError


def test_errors_cross_a_process_boundary_with_what_they_know() -> None:
    failed = pickle.loads(pickle.dumps(VerifierError("no", counts={"requests": 2.0})))
    assert (str(failed), failed.counts) == ("no", {"requests": 2.0})
    refused = pickle.loads(pickle.dumps(BackendError("busy", status=429, retry_after_s=1.5)))
    assert (str(refused), refused.status, refused.retry_after_s) == ("busy", 429, 1.5)
    assert isinstance(refused, ConnectionError)
    plain = BackendError("gone")
    assert (str(plain), plain.status, plain.retry_after_s) == ("gone", None, 0.0)
