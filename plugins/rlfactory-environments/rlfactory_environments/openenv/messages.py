"""The messages of OpenEnv's WebSocket: what is sent, and what an answer means.

The protocol is that of openenv 0.10 and openenv-core 0.3: each message is a JSON object with ``type`` and ``data``. The
server answers each message with one, in order: ``observation``, ``state``, ``mcp`` (a JSON-RPC response) or ``error``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlfactory_core.errors import BackendError

FULL = "CAPACITY_REACHED"
OF_ACTION = frozenset({"VALIDATION_ERROR", "EXECUTION_ERROR"})  # errors that an action can cause
_SHOWN = 300  # characters of an unreadable answer in a message for the user


@dataclass(frozen=True, slots=True)
class Observed:
    """The environment's response to a reset or a step."""

    observation: Mapping[str, Any]
    reward: float  # 0 if the environment gives none
    done: bool


@dataclass(frozen=True, slots=True)
class Refusal:
    """An action that the environment did not take."""

    text: str  # for the model
    invalid: bool  # whether it does not fit the action schema; else the environment raised an exception


class UnreadyServerError(BackendError):
    """No session could be had; another server, or the same one a little later, may have one."""


class ServerFullError(UnreadyServerError):
    """The server has as many sessions as it allows.

    Args:
        most: how many it allows; None: it does not say.
    """

    def __init__(self, message: str, most: int | None) -> None:
        super().__init__(message)
        self.most = most


def reset_message(parameters: Mapping[str, Any]) -> str:
    return json.dumps({"type": "reset", "data": dict(parameters)})


def step_message(action: Mapping[str, Any]) -> str:
    return json.dumps({"type": "step", "data": dict(action)})


def mcp_message(method: str, params: Mapping[str, Any]) -> str:
    return json.dumps({"type": "mcp", "data": {"jsonrpc": "2.0", "id": 1, "method": method, "params": dict(params)}})


CLOSE_MESSAGE = json.dumps({"type": "close"})


def read_answer(url: str, text: str | bytes, expected: str) -> Mapping[str, Any] | Refusal:
    """The data of an answer, or why the environment did not take the action.

    Args:
        url: of the server, for messages.
        expected: the answer's ``type``.

    Raises:
        ServerFullError: the server has no room for this session.
        UnreadyServerError: it has no environment for this session.
        BackendError: the server does not keep the protocol.
    """
    try:
        answer = json.loads(text)
        kind, data = answer["type"], answer["data"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise _broken(url, text, expected) from None
    if kind == expected and isinstance(data, Mapping):
        return data
    if kind != "error" or not isinstance(data, Mapping):
        raise _broken(url, text, expected)
    code, message = str(data.get("code")), str(data.get("message"))
    if code == FULL:
        most = data.get("max_sessions")
        raise ServerFullError(f"{url} is full: {message}", most if isinstance(most, int) else None)
    if code in OF_ACTION:
        return Refusal(_with_details(message, data.get("errors")), code == "VALIDATION_ERROR")
    raise UnreadyServerError(f"{url} answered with an error ({code}): {message[:_SHOWN]}")


def read_observed(url: str, data: Mapping[str, Any]) -> Observed:
    """
    Raises:
        BackendError: it is not a response of an environment, or its reward is not a finite number.
    """
    observation, reward = data.get("observation"), data.get("reward")
    number = 0.0 if reward is None else float(reward) if isinstance(reward, (int, float)) else math.nan
    if not isinstance(observation, Mapping) or not math.isfinite(number):
        raise _broken(url, json.dumps(data), "observation and a finite reward")
    return Observed(observation, number, bool(data.get("done", False)))


def _with_details(message: str, errors: Any) -> str:
    """The message, with pydantic's list of errors, if there is one, as ``field: problem``."""
    if not isinstance(errors, list):
        return message
    found = [each for each in errors if isinstance(each, Mapping)]
    parts = [f"{'.'.join(map(str, each.get('loc', ())))}: {each.get('msg', '')}".lstrip(": ") for each in found]
    return f"{message}: {'; '.join(parts)}" if parts else message


def _broken(url: str, text: str | bytes, expected: str) -> BackendError:
    shown = text.decode(errors="replace") if isinstance(text, bytes) else text
    return BackendError(f"{url} answered with {shown[:_SHOWN]!r}; expected {expected}. Is it an OpenEnv server?")
