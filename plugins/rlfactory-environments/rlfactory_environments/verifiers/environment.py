"""An environment of verifiers (``verifiers.v1``): a task set, harnesses, and an environment that drives agents.

``Env.run_episode`` is called as verifiers' own trainers call it, with our endpoint as the model's. A task set that
brings no harness is played by `chat_harness`, which runs in this process; verifiers' own default gives the model a
shell on this machine, and starts a process for each turn.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from rlfactory_core.errors import ConfigError, ToolUnavailableError
from rlfactory_core.gateway import Endpoint
from rlfactory_core.types import Message, Sample
from rlfactory_environments.episodes import imported
from rlfactory_environments.verifiers.rubric import INFO

HARNESS = "rlfactory_chat"
"""The id of `chat_harness`, under which verifiers imports it."""
_KEYS = "RLFACTORY_API_KEY_"  # of variables of this process; verifiers hides what is named so from its programs
_LIMITS = ("turn_limit", "tool_call_limit", "row_limit", "context_length_exceeded")  # codes of the endpoint's refusals
_SHARE = 5  # at most one row in five is held out


class VerifiersEnvironment:
    """A task set with its environment. All but loading and `samples` runs on one event loop of its own."""

    def __init__(self, environment: Any) -> None:
        self._environment = environment
        self._tasks: dict[str, list[Any]] = {}
        self._serving: contextlib.AbstractAsyncContextManager[Any] | None = None
        weights = [
            float(getattr(each, "_vf_weight", 1.0))
            for each in vars(type(environment.taskset).task_type()).values()
            if getattr(each, "reward", False)
        ]
        low, high = sum(min(0.0, weight) for weight in weights), sum(max(0.0, weight) for weight in weights)
        self.reward_bounds = (low, high) if any(weights) else (-math.inf, math.inf)

    @classmethod
    def load(
        cls, name: str, arguments: Mapping[str, Any], settings: Mapping[str, Any], max_turns: int | None
    ) -> VerifiersEnvironment:
        """The environment with an installed task set.

        Args:
            name: of the task set.
            arguments: fields of its configuration.
            settings: further fields of the environment's configuration.
            max_turns: of one rollout; None: the environment's own.

        Raises:
            MissingExtraError: verifiers is not installed.
            ConfigError: there is no such task set, it does not take these arguments, or several agents would be the
                model that is trained.
        """
        imported("verifiers.v1", "verifiers")
        try:
            return cls(_made(name, arguments, settings, max_turns))
        except ConfigError:
            raise
        except Exception as error:  # the boundary to verifiers and to whoever wrote the environment
            raise ConfigError(
                f"verifiers cannot load the task set '{name}' with {dict(arguments) or 'no arguments'}: "
                f"{type(error).__name__}: {error}. Install its package, and see its arguments there. Environments of "
                "the older interface, load_environment, are not played."
            ) from error

    def samples(self, train: int, held_out: int) -> Mapping[str, Sequence[Sample]]:
        """At most so many samples for the splits ``train`` and ``eval``, which share none."""
        tasks = list(islice(self._environment.taskset, train + held_out))
        at = len(tasks) - min(held_out, len(tasks) // _SHARE)
        self._tasks = {"train": tasks[:at][:train], "eval": tasks[at:]}
        return {
            split: [_sample(split, number, task.data) for number, task in enumerate(tasks)]
            for split, tasks in self._tasks.items()
        }

    async def open(self) -> None:
        self._serving = self._environment.serving()
        await self._serving.__aenter__()

    async def close(self) -> None:
        serving, self._serving = self._serving, None
        if serving is not None:
            await serving.__aexit__(None, None, None)

    async def play(self, sample: Sample, endpoint: Endpoint) -> dict[str, Any]:
        """Play a sample with the model at the endpoint; returns what `Task.agent` does.

        Raises:
            ToolUnavailableError: the environment failed, and not the model.
        """
        from verifiers.v1.clients import EvalClientConfig, ModelContext
        from verifiers.v1.types import SamplingConfig

        variable = f"{_KEYS}{endpoint.key}"
        os.environ[variable] = endpoint.key  # verifiers reads a key from a variable only
        try:
            client = EvalClientConfig(base_url=endpoint.url, api_key_var=variable)
            context = ModelContext(model=endpoint.model, client=client, sampling=SamplingConfig())
            task = self._tasks[sample.split][int(sample.metadata["row"])]
            episode = await self._environment.run_episode(task, context)
        finally:
            del os.environ[variable]
        return _played(episode)


def _made(name: str, arguments: Mapping[str, Any], settings: Mapping[str, Any], max_turns: int | None) -> Any:
    from verifiers.v1.configs.agent import AgentConfig
    from verifiers.v1.utils.loaders import (
        default_harness_id,
        env_config_type,
        load_environment,
        resolve_env_config,
    )

    from rlfactory_environments.verifiers import chat_harness

    sys.modules.setdefault(HARNESS, chat_harness)  # verifiers finds harnesses by the names of top-level modules
    fields = env_config_type(name, str(settings.get("id", ""))).model_fields
    roles = {role: each.default for role, each in fields.items() if isinstance(each.default, AgentConfig)}
    wanted: dict[str, Any] = {**settings, "taskset": {"id": name, **arguments}}
    own: dict[str, Any] = {"runtime": {"type": "subprocess"}}
    if default_harness_id(name) == "bash":
        own["harness"] = {"id": HARNESS}
    for role in roles:
        given = dict(wanted.get(role) or {})
        wanted[role] = {**own, **({"max_turns": max_turns} if max_turns else {}), **given}
    trained = [role for role, each in roles.items() if each.model is None and not wanted[role].get("model")]
    if len(trained) > 1:
        raise ConfigError(
            f"The environment '{name}' has several agents ({', '.join(trained)}), and one model is trained. Give "
            f'all but one a model of their own: --settings \'{{"{trained[-1]}": {{"model": …, "client": …}}}}\''
        )
    return load_environment(resolve_env_config(wanted))


def _played(episode: Any) -> dict[str, Any]:
    """
    Raises:
        ToolUnavailableError: the episode failed, and not at a limit of the run's.
    """
    errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
    if not episode.ok and not (errors and episode.traces and all(map(_is_limit, errors))):
        reason = f"{errors[0].type}: {errors[0].message}" if errors else "it gives no reason"
        raise ToolUnavailableError(f"the environment failed: {reason[:400]}")
    traces = [trace for trace in episode.traces if trace.rewards] or episode.traces
    components: dict[str, float] = {}
    for trace in traces:
        components.update({name: each.score for name, each in trace.rewards.items() if each is not None})
        components.update({name: value for name, value in trace.metrics.items() if value is not None})
    last = traces[-1]
    words = next((each.message for each in reversed(last.nodes) if each.message.role == "assistant"), None)
    reward = float(sum(trace.reward for trace in traces))
    given = {"components": components, "stop": str(last.stop_condition or ""), "reward": reward}
    return {"answer": _text(words.content if words else None), "metadata": {INFO: given}}


def _is_limit(error: Any) -> bool:
    """Whether our endpoint has refused a request because of the run's limits, which the model has used up."""
    return error.type == "ProviderError" and any(f'"code":"{code}"' in error.message for code in _LIMITS)


def _sample(split: str, number: int, data: Any) -> Sample:
    answer = getattr(data, "answer", None)
    return Sample(
        f"{split}-{number}",
        _messages(data),
        answer=answer if isinstance(answer, str) and answer else None,
        metadata={"row": number},
        split=split,
    )


def _messages(data: Any) -> tuple[Message, ...]:
    system = (Message("system", data.system_prompt),) if data.system_prompt else ()
    if isinstance(data.prompt, str) or data.prompt is None:
        return (*system, Message("user", data.prompt or "(the environment opens the conversation)"))
    roles = {"system": "system", "assistant": "assistant"}
    prompt = (Message(roles.get(each.role, "user"), _text(each.content)) for each in data.prompt)  # type: ignore[arg-type]
    return (*system, *prompt)


def _text(content: Any) -> str:
    if isinstance(content, str) or content is None:
        return content or ""
    return "\n".join(getattr(part, "text", "") for part in content)
