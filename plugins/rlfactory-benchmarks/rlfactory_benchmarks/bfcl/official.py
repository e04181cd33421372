"""The code of ``bfcl-eval`` that reads data and evaluates outputs, imported without its clients of models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

from rlfactory_benchmarks.bfcl.guard import guard
from rlfactory_benchmarks.packages import require, stand_ins

__all__ = ["DOTS", "UNDERSCORES", "official"]

PACKAGE = "bfcl_eval"
UNDERSCORES, DOTS = "rlfactory-underscores", "rlfactory-dots"  # models of its table: how they write functions' names


@dataclass(frozen=True, slots=True)
class OfficialCode:
    """Modules of ``bfcl_eval``."""

    runner: Any  # eval_checker.eval_runner, which has the categories and the functions of bfcl_eval.utils as well
    handling: Any  # model_handler.utils: tools, prompts and decoders
    execution: Any  # multi_turn_utils, whose variables the simulators are

    @contextmanager
    def simulators(self) -> Iterator[str]:
        """A name that no other simulators have; those that are made under it are forgotten at the end."""
        name = f"rlfactory_{uuid4().hex}"
        try:
            yield name
        finally:
            kept = vars(self.execution)
            for each in [each for each in list(kept) if each.startswith(name)]:
                del kept[each]


@cache
def official() -> OfficialCode:
    """Import the code.

    Raises:
        MissingExtraError: it is not installed.
    """
    require(PACKAGE, "tree_sitter", "tree_sitter_java", "tree_sitter_javascript", "tenacity", "filelock", "mpmath")
    data = Path(str(import_module(PACKAGE).__file__)).parent / "data"
    paths = {
        "PROMPT_PATH": data,
        "POSSIBLE_ANSWER_PATH": data / "possible_answer",
        "MULTI_TURN_FUNC_DOC_PATH": data / "multi_turn_func_doc",
    }
    unneeded: Mapping[str, Mapping[str, Any]] = {
        f"{PACKAGE}.constants.eval_config": paths,  # makes folders for results beside the package
        f"{PACKAGE}.constants.model_config": {"MODEL_CONFIG_MAPPING": {}},  # imports the clients of all models
        f"{PACKAGE}.model_handler.base_handler": {"BaseHandler": object},
        f"{PACKAGE}.eval_checker.eval_runner_helper": {},  # writes the files of scores
        "dotenv": {"load_dotenv": None},
        "tqdm": {"tqdm": None},
    }
    with stand_ins(unneeded):
        utils: Any = import_module(f"{PACKAGE}.utils")
        runner = import_module(f"{PACKAGE}.eval_checker.eval_runner")
        handling = import_module(f"{PACKAGE}.model_handler.utils")
        execution = import_module(f"{PACKAGE}.eval_checker.multi_turn_eval.multi_turn_utils")
    utils.load_file = partial(utils.load_file, use_lock=False)  # nobody writes its files
    runner.MODEL_CONFIG_MAPPING.update(
        {name: SimpleNamespace(underscore_to_dot=name == UNDERSCORES) for name in (UNDERSCORES, DOTS)}
    )
    guard(execution)
    return OfficialCode(runner, handling, execution)
