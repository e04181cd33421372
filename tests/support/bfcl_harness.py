"""The leaderboard's own evaluation, and histories of conversations that a model may have made."""

from __future__ import annotations

import ast
import importlib
import random
import sys
from itertools import count
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from rlfactory_benchmarks.bfcl.data import Entry
from rlfactory_benchmarks.bfcl.official import official

History = list[list[list[str]]]
_NUMBERS = count()
_VALUES = ("a", "", "document", "temp", 1, -3, 0.5, 10**6, True, None, ["x"], {"a": 1}, "sort(x)")


def harness(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The harness's own module that evaluates result files, with stand-ins for what it only prints and writes with."""
    official()
    mapping = importlib.import_module("bfcl_eval.eval_checker.ast_eval.ast_checker").MODEL_CONFIG_MAPPING
    mapping.update({name: SimpleNamespace(underscore_to_dot=name == "underscores") for name in ("underscores", "dots")})
    for name, attributes in {
        "bfcl_eval.constants.model_config": {"MODEL_CONFIG_MAPPING": mapping},
        "bfcl_eval.eval_checker.eval_runner_helper": {},
        "bfcl_eval.model_handler.base_handler": {"BaseHandler": object},
        "dotenv": {"load_dotenv": None},
        "tqdm": {"tqdm": None},
    }.items():
        module = ModuleType(name)
        vars(module).update(attributes)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "bfcl_eval.eval_checker.eval_runner", raising=False)
    return importlib.import_module("bfcl_eval.eval_checker.eval_runner")


def official_verdict(runner: Any, entry: Entry, history: Any, decode: Any = list) -> bool:
    """The harness's verdict on a conversation, with Python's own `eval`.

    Under one name it would go on in the state of the evaluation before.
    """
    handler = SimpleNamespace(decode_execute=lambda step, has_tool_call_tag: decode(step))
    name, kept = f"harness{next(_NUMBERS)}", vars(official().execution)
    guarded, kept["eval"] = kept["eval"], eval
    try:
        found = runner._evaluate_single_multi_turn_entry(
            handler, entry.id, history, list(entry.truth), dict(entry.row), name, entry.category
        )
    except Exception:
        return False
    finally:
        kept["eval"] = guarded
        for each in [each for each in kept if each.startswith(name)]:
            del kept[each]
    return bool(found["valid"])


def methods(entry: Entry) -> set[str]:
    """The names of the functions of a conversation's simulators."""
    places = official().execution.CLASS_FILE_PATH_MAPPING
    simulators = [getattr(importlib.import_module(places[name]), name) for name in entry.row["involved_classes"]]
    return {name for simulator in simulators for name in dir(simulator) if not name.startswith("_")}


def gold(entry: Entry) -> History:
    return [[list(turn)] if turn else [] for turn in entry.truth]


def mutated(entry: Entry, rng: random.Random, changes: int) -> History:
    """The expected calls with changes: dropped, doubled, swapped, moved, renamed, with other arguments, inserted."""
    turns = [[[call] for call in turn] if rng.random() < 0.3 else [list(turn)] for turn in entry.truth]
    known = sorted(methods(entry) - {"power", "logarithm", "square_root", "round_number"})
    for _ in range(changes):
        steps = rng.choice(turns)
        step = rng.choice(steps) if steps else []
        place = rng.randrange(len(step)) if step else 0
        kind = rng.randrange(10)
        if kind in (0, 7) or not step:
            step.insert(place, rng.choice([random_call(rng, known), random_call(rng, ["no_such_function"]), "cd('x'"]))
            if not steps:
                steps.append(step)
        elif kind == 1:
            step.insert(place, step[place])
        elif kind == 2:
            step.pop(place)
        elif kind == 3:
            rng.shuffle(step)
        elif kind == 4:
            rng.choice(turns).append([step.pop(place)])
        elif kind == 5:
            step[place] = f"{rng.choice(known)}({step[place].partition('(')[2]}"
        elif kind == 6:
            steps.clear()
        else:
            step[place] = other_argument(step[place], rng)
    return [*turns, []] if rng.random() < 0.02 else turns


def random_call(rng: random.Random, names: list[str]) -> str:
    values = ", ".join(repr(rng.choice(_VALUES)) for _ in range(rng.randrange(3)))
    return f"{rng.choice(names)}({values})"


def other_argument(call: str, rng: random.Random) -> str:
    try:
        node: Any = ast.parse(call, mode="eval").body
    except SyntaxError:
        return call
    value = ast.Constant(rng.choice(_VALUES[:10]))
    if node.keywords:
        rng.choice(node.keywords).value = value
    elif node.args:
        node.args[rng.randrange(len(node.args))] = value
    return ast.unparse(node)
