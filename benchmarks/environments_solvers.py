"""Solutions of published environments, for ``--solver FILE.py:NAME``: each gives the next message of an episode."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Sequence
from functools import cache
from typing import Any

from rlfactory_core import Message, Sample

MOVES = {"left": (0, -1), "down": (1, 0), "right": (0, 1), "up": (-1, 0)}
_CELL = re.compile(r"\|([^|]*)")


def path(board: Sequence[str], start: tuple[int, int]) -> list[str]:
    """The moves of a shortest path to ``G`` that avoids ``H``."""
    seen, waiting = {start}, deque([(start, [])])  # type: ignore[var-annotated]
    while waiting:
        (row, column), moves = waiting.popleft()
        if board[row][column] == "G":
            return list(moves)
        for name, (down, right) in MOVES.items():
            to = row + down, column + right
            inside = 0 <= to[0] < len(board) and 0 <= to[1] < len(board[0])
            if inside and to not in seen and board[to[0]][to[1]] != "H":
                seen.add(to)
                waiting.append((to, [*moves, name]))
    return ["down"]  # there is no way


def frozen_lake(sample: Sample, messages: Sequence[Message]) -> str:
    """Gymnasium's frozen lake, as it is drawn; it leads to the goal if the ice is not slippery."""
    rows = [line for line in messages[-1].content.splitlines() if re.fullmatch(r"[SFHG\[\]]{4,}", line)]
    row, column = next((number, line.index("[")) for number, line in enumerate(rows) if "[" in line)
    return path([line.replace("[", "").replace("]", "") for line in rows], (row, column))[0]


def text_frozen_lake(sample: Sample, messages: Sequence[Message]) -> str:
    """TextArena's frozen lake."""
    lines = [line for line in messages[-1].content.splitlines() if line.startswith("|")]
    cells = [[cell.strip() or "F" for cell in _CELL.findall(line)[:-1]] for line in lines]
    board = ["".join(row) for row in cells]
    row, column = next((number, line.index("P")) for number, line in enumerate(board) if "P" in line)
    return f"[{path(board, (row, column))[0]}]"


def cliff_walking(sample: Sample, messages: Sequence[Message]) -> str:
    """Up, along the cliff, and down."""
    turn = sum(message.role == "assistant" for message in messages)
    return ["up", *["right"] * 11, "down"][min(turn, 12)]


def guess_the_number(sample: Sample, messages: Sequence[Message]) -> str:
    """By halves."""
    found = re.search(r"between (\d+) and (\d+)", messages[0].content)
    low, high = (int(found[1]), int(found[2])) if found else (1, 20)
    for said, heard in zip(messages[1::2], messages[2::2], strict=False):
        guess = int(re.sub(r"\D", "", said.content))
        low, high = (guess + 1, high) if "higher" in heard.content else (low, guess - 1)
    return f"[{(low + high) // 2}]"


def tower_of_hanoi(sample: Sample, messages: Sequence[Message]) -> str:
    """The well-known recursion for three disks."""
    turn = sum(message.role == "assistant" for message in messages)
    return f"[{_hanoi(3, 'A', 'C', 'B')[min(turn, 6)]}]"


@cache
def _hanoi(disks: int, start: str, to: str, other: str) -> tuple[str, ...]:
    if disks == 0:
        return ()
    return (*_hanoi(disks - 1, start, other, to), f"{start} {to}", *_hanoi(disks - 1, other, to, start))


def taxi(sample: Sample, messages: Sequence[Message]) -> str:
    """A shortest way in the environment's own table of transitions."""
    state = int(messages[-1].content.rpartition("Observation: ")[2])
    return ("south", "north", "east", "west", "pick up", "drop off")[_taxi_action(state)]


@cache
def _taxi_action(state: int) -> int:
    table = _taxi_table()
    seen, waiting = {state}, deque([(state, ())])  # type: ignore[var-annotated]
    while waiting:
        at, actions = waiting.popleft()
        for action, ((_, to, reward, done),) in table[at].items():
            if done and reward > 0:
                return int((*actions, action)[0])
            if to not in seen:
                seen.add(to)
                waiting.append((to, (*actions, action)))
    return 0


@cache
def _taxi_table() -> Any:
    import gymnasium

    return gymnasium.make("Taxi-v4").unwrapped.P  # type: ignore[attr-defined]


def blackjack(sample: Sample, messages: Sequence[Message]) -> str:
    """Hit below 17."""
    total = int(re.findall(r"\[(\d+),", messages[-1].content)[-1])
    return "hit" if total < 17 else "stick"


def mountain_car(sample: Sample, messages: Sequence[Message]) -> str:
    """Push the way that the car rolls."""
    velocity = float(re.findall(r"[-\d.e]+", messages[-1].content.rpartition("Observation:")[2])[1])
    return "right" if velocity >= 0 else "left"


def cart_pole(sample: Sample, messages: Sequence[Message]) -> str:
    """Push towards where the pole falls."""
    numbers = [float(text) for text in re.findall(r"[-\d.e]+", messages[-1].content.rpartition("Observation:")[2])]
    return "right" if numbers[2] + 0.5 * numbers[3] > 0 else "left"


def marble(sample: Sample, messages: Sequence[Message]) -> str:
    """The layout with which a level of marble-v1 was made, of 20 levels for training and the next for evaluation."""
    return f"```json\n{json.dumps(_marble_solution(int(sample.metadata['row']), sample.split))}\n```"


@cache
def _marble_solution(row: int, split: str) -> Any:
    from marble_v1 import levels

    stream = levels.stream(0, 1, ring_half_width=118.0)
    number = row + (20 if split == "eval" else 0)
    made = [next(stream) for _ in range(number + 1)][-1]
    return [{"kind": each.kind.value, "x": each.x, "y": each.y, "rot": each.rot_steps} for each in made.solution]


def small_sums(sample: Sample, messages: Sequence[Message]) -> str:
    """The sums and differences of two numbers in reasoning-gym's chain_sum."""
    found = re.search(r"(\d+) ([-+]) (\d+) =", messages[-1].content)
    assert found is not None
    one, other = int(found[1]), int(found[3])
    return f"<answer> {one + other if found[2] == '+' else one - other} </answer>"


def short_echo(sample: Sample, messages: Sequence[Message]) -> str:
    """For three steps of OpenEnv's echo environment, which gives 0.1 a character, at most 1: only the last is long."""
    return "ah" if sum(message.role == "assistant" for message in messages) < 2 else "ahahahahahah"


def long_echo(sample: Sample, messages: Sequence[Message]) -> str:
    """For OpenEnv's echo environment: the highest reward in each step."""
    return "ahahahahahah"
