"""What the model of the parity tests says."""

from __future__ import annotations

import json

from parity_task import MAX_TURN_TOKENS


def looking(where: str, **rewards: float) -> str:
    return f"<tool_call>{json.dumps({'name': 'look', 'arguments': {'where': where, **rewards}})}</tool_call>"


def answering(value: object) -> str:
    return f"<answer>{value}</answer>"


def script(case: str, attempt: int) -> list[str]:
    """What the model says in an attempt, turn by turn."""
    plain = [looking("left", worth=0.1 * attempt), looking("up", bonus=0.3) * 2, answering(attempt % 3)]
    if case == "equal":  # the mean of eight such numbers is another number in 32 bits
        return [answering(1.2)]
    if case == "alike":  # 1.1 each, of one part or of several
        parts = {
            0: [answering(1.1)],
            1: [looking("left", worth=0.1), looking("up", worth=0.2), answering(0.8)],
            2: [looking("left", bonus=0.6), answering(0.8)],
            3: [looking("left", worth=0.7, bonus=0.2), answering(0.3)],
        }
        return parts[attempt % 4]
    if case == "infra" and attempt in (1, 4):
        return [looking("left", worth=5.0), looking("far", worth=5.0), answering(9)]
    if case == "verifier" and attempt in (0, 7):
        return [looking("left", worth=5.0), answering("maybe")]
    if case == "single" and attempt:
        return [answering("maybe")]
    if case == "none":
        return [answering("maybe")]
    if case == "raises" and attempt == 2:
        return [looking("left", worth=5.0), looking("right") + "raise", answering(9)]
    if case == "cut" and attempt % 2:
        return [looking("left", worth=0.25 + 0.01 * attempt), looking("up", worth=0.1) + "and " * MAX_TURN_TOKENS]
    return plain
