"""Action lists played by the package alone: its orchestrator, agents with a script, and its evaluators.

Nothing of the plugin's episodes and environments is used; the plugin only imports the package without its clients.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from rlfactory_benchmarks.tau2.official import official, task


def direct(
    domain: str, name: str, turns: Sequence[Any], *, solo: bool, steps: int = 200, errors: int = 10
) -> tuple[str, float, dict[str, float]]:
    """(termination, reward, parts) of the package for an agent that says these turns, the last one again and again.

    Args:
        turns: calls as (name, arguments) in lists, or texts. With a user, its replies stand in lists under "user":
            ``{"user": [...]}`` is what it says and calls next.
    """
    code, subject = official(), task(domain, name)
    environment = code.registry.get_env_constructor(domain)(**({"solo_mode": True} if solo else {}))
    agent_says = [each for each in turns if not isinstance(each, dict)]
    user_says = [each for turn in turns if isinstance(turn, dict) for each in turn["user"]]
    policy = environment.get_policy()
    if solo:
        users = environment.get_user_tools() if environment.user_tools else []
        agent, user = code.agents.LLMSoloAgent(environment.get_tools() + users, policy, subject), code.users.DummyUser()
    else:
        agent = code.agents.LLMAgent(environment.get_tools(), policy)
        tools = environment.get_user_tools() if environment.user_tools else None
        user = code.users.UserSimulator(tools, str(subject.user_scenario))

    def scripted(kind: Any, script: list[Any], role: str) -> Any:
        def say(_message: Any, state: Any) -> Any:
            turn = script.pop(0) if len(script) > 1 else script[0]
            calls = None
            if not isinstance(turn, str):
                calls = [
                    code.messages.ToolCall(id=f"c{i}", name=n, arguments=deepcopy(a), requestor=role)
                    for i, (n, a) in enumerate(turn)
                ]
            message = kind(role=role, content=turn if isinstance(turn, str) else None, tool_calls=calls, cost=0.0)
            if solo and calls:
                message = agent._check_if_stop_toolcall(message)
            return message, state

        return say

    agent.generate_next_message = scripted(code.messages.AssistantMessage, agent_says, "assistant")
    user.generate_next_message = scripted(code.messages.UserMessage, user_says or ["###STOP###"], "user")
    code.orchestrator.get_cost = lambda _messages: None
    run = code.orchestrator.Orchestrator(domain, agent, user, environment, subject, steps, errors, solo_mode=solo).run()
    try:
        found = code.evaluator.evaluate_simulation(run, subject, code.evaluator.EvaluationType.ALL, solo, domain)
    except Exception:  # the package's own runner scores it so, with skip_failed_samples
        return run.termination_reason.value, 0.0, {}
    parts = {kind.value.lower(): value for kind, value in (found.reward_breakdown or {}).items()}
    return run.termination_reason.value, found.reward, parts


def mutated(
    calls: Sequence[tuple[str, Mapping[str, Any]]], others: Sequence[tuple[str, Mapping[str, Any]]], rng: random.Random
) -> list[tuple[str, dict[str, Any]]]:
    """The calls with one to three changes: dropped, doubled, swapped, replaced, or with other arguments."""
    found = [(name, deepcopy(dict(arguments))) for name, arguments in calls]
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(found)) if found else 0
        kind = rng.choice(["drop", "double", "swap", "insert", "value", "key", "name", "missing", "shuffle"])
        if kind == "insert" or not found:
            name, arguments = rng.choice(list(others))
            found.insert(rng.randint(0, len(found)), (name, deepcopy(dict(arguments))))
        elif kind == "drop":
            found.pop(at)
        elif kind == "double":
            found.insert(at, deepcopy(found[at]))
        elif kind == "swap":
            other = rng.randrange(len(found))
            found[at], found[other] = found[other], found[at]
        elif kind == "shuffle":
            rng.shuffle(found)
        elif kind == "name":
            found[at] = (rng.choice(["no_such_tool", rng.choice(list(others))[0]]), found[at][1])
        elif kind == "key":
            found[at][1]["surplus"] = 1
        elif found[at][1]:
            key = rng.choice(list(found[at][1]))
            if kind == "missing":
                del found[at][1][key]
            else:
                found[at][1][key] = _other(found[at][1][key], key, others, rng)
    return found


def _other(value: Any, key: str, others: Sequence[tuple[str, Mapping[str, Any]]], rng: random.Random) -> Any:
    same = [arguments[key] for _, arguments in others if key in arguments and arguments[key] != value]
    return rng.choice([*same[:50], None, 0, -1, 2.5, "", "unknown", [], {}, str(value), [value]])
