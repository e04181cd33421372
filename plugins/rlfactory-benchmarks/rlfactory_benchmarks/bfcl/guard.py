"""What models' calls may do in the simulators of ``bfcl-eval``, which evaluates them as Python."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial, wraps
from importlib import import_module
from inspect import signature
from typing import Any

__all__ = ["guard"]

_ALLOWED = (
    ast.Expression, ast.Call, ast.Attribute, ast.Name, ast.Load, ast.keyword, ast.Constant, ast.List, ast.Tuple,
    ast.Dict, ast.UnaryOp, ast.USub,
)  # fmt: skip
_BOUNDED = {"power": "exponent", "logarithm": "precision", "square_root": "precision", "round_number": "decimal_places"}
_LARGEST = 1000  # of these arguments: with larger ones a call may take for ever


def guard(execution: Any) -> None:
    """Mend the package's ``multi_turn_utils``, which turns each error into a call's result.

    A call is evaluated only if it consists of the simulators' methods and constants, and the calculator refuses
    arguments with which it may not end.
    """
    execution.eval = partial(_evaluated, vars(execution))
    calculator = import_module(execution.CLASS_FILE_PATH_MAPPING["MathAPI"]).MathAPI
    for name, parameter in _BOUNDED.items():
        setattr(calculator, name, _bounded(getattr(calculator, name), parameter))


def _evaluated(known: dict[str, Any], call: str) -> Any:
    """The value of a call, such as ``NAME_instance.cd(folder='a')``: the package has put its simulators before methods.

    Args:
        known: the variables of its module.

    Raises:
        NameError: another function, or a variable.
        ValueError: anything else in it. Also, as of `eval`: whatever the syntax or the method raises.
    """
    tree = ast.parse(call.lstrip(" \t"), mode="eval")
    nodes = list(ast.walk(tree))
    methods = [each.func for each in nodes if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute)]
    public = [each.value for each in methods if not each.attr.startswith("_") and isinstance(each.value, ast.Name)]
    simulators = [each for each in public if each.id in known and each.id.endswith("_instance")]
    for node in nodes:
        if isinstance(node, ast.Name) and node not in simulators:
            raise NameError(f"name '{node.id[:80]}' is not defined")
        if not isinstance(node, _ALLOWED) or (isinstance(node, ast.Attribute) and node.value not in simulators):
            raise ValueError(f"{type(node).__name__} is not allowed: {ast.unparse(node)[:80]}")
    return eval(compile(tree, "<call>", "eval"), known)  # noqa: S307 of the parts that were looked through above


def _bounded(method: Callable[..., Any], parameter: str) -> Callable[..., Any]:
    shape = signature(method)

    @wraps(method)
    def checked(*given: Any, **named: Any) -> Any:
        value = shape.bind(*given, **named).arguments.get(parameter)
        if isinstance(value, (int, float)) and abs(value) > _LARGEST:
            raise ValueError(f"{parameter} may be at most {_LARGEST}, got {str(value)[:20]}")
        return method(*given, **named)

    return checked
