"""Failures of a request and their remedies."""

from __future__ import annotations

from typing import Literal

from rlfactory_core.errors import BackendError

Remedy = Literal["again", "elsewhere", "none"]

_AGAIN = (408, 409, 425, 429)  # and all from 500 on
_ELSEWHERE = (401, 403, 404, 405, 410)  # the endpoint is wrong, not the question


class RequestError(Exception):
    """A request failed. This exception never leaves the service.

    Args:
        remedy: ``again``: repeat, preferably on another endpoint; ``elsewhere``: repeat only on another; ``none``.
        blame: whether the endpoint is at fault, so that its breaker counts it.
        wait_s: the pause that the endpoint asks for.
    """

    def __init__(
        self, text: str, remedy: Remedy = "again", *, blame: bool = True, wait_s: float = 0.0, status: int | None = None
    ) -> None:
        super().__init__(text)
        self.remedy, self.blame, self.wait_s, self.status = remedy, blame, wait_s, status


def failure_of(error: BackendError) -> RequestError:
    """The failure for a client's error. An error without a status is a lost, late or invalid answer."""
    status, wait_s = error.status, error.retry_after_s
    if status is None:
        return RequestError(str(error))
    if status >= 500:
        return RequestError(str(error), wait_s=wait_s, status=status)
    if status in _AGAIN:
        return RequestError(str(error), blame=status == 408, wait_s=wait_s, status=status)
    if status in _ELSEWHERE:
        return RequestError(str(error), "elsewhere", status=status)
    return RequestError(str(error), "none", blame=False, status=status)
