"""The first interface of verifiers (``load_environment``; up to verifiers 0.3): environments with rubrics.

``Environment.rollout`` is called as verifiers' own trainers call it, with a client for our endpoint. So every kind of
environment is covered, also one that overrides ``rollout``.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from types import ModuleType, SimpleNamespace
from typing import Any

from rlfactory_core.errors import ConfigError, ToolUnavailableError
from rlfactory_core.gateway import Endpoint
from rlfactory_core.tools.attempt import error_line, is_infra_error
from rlfactory_core.types import Message
from rlfactory_environments.verifiers.environment import Played, Row
from rlfactory_environments.verifiers.splits import held_out_rows

_LIMITS = ("turn_limit", "tool_call_limit", "row_limit", "context_length_exceeded")  # codes of the gateway's refusals
_raised: ContextVar[dict[str, BaseException] | None] = ContextVar("_raised", default=None)


class FirstEnvironment:
    """An environment with a data set and a rubric."""

    def __init__(self, environment: Any) -> None:
        self._environment = environment
        self._rows: dict[str, list[Mapping[str, Any]]] = {}
        rubrics = list(_rubrics(environment.rubric))
        for rubric in rubrics:
            rubric.funcs[:] = [_noting(function) for function in rubric.funcs]
        self.has_group_rewards = bool(
            any(rubric._is_group_func(function) for rubric in rubrics for function in rubric.funcs)
        )
        weights = [weight for rubric in rubrics for weight in rubric.weights]
        # Functions of rewards give 0 to 1, as verifiers' documentation advises; the check `bounds` finds others.
        self.reward_bounds = (sum(min(0.0, weight) for weight in weights), sum(max(0.0, weight) for weight in weights))
        if not any(weights):
            self.reward_bounds = (-math.inf, math.inf)

    @classmethod
    def load(cls, module: ModuleType, name: str, arguments: Mapping[str, Any]) -> FirstEnvironment:
        """
        Raises:
            ConfigError: this release of verifiers no longer has the interface.
        """
        import verifiers as vf

        if not hasattr(vf, "load_environment"):
            raise ConfigError(
                f"'{name}' is an environment of verifiers' first interface (load_environment), which verifiers "
                f"{vf.__version__} no longer has. Install the last release that has both: "
                "python -m pip install 'verifiers>=0.3,<0.4'"
            )
        function = name.partition(":")[2]
        with _signals_kept():
            made = getattr(module, function)(**arguments) if function else vf.load_environment(name, **arguments)
        if not isinstance(made, vf.Environment):
            raise ConfigError(f"'{name}' makes a {type(made).__name__}; expected an Environment of verifiers.")
        return cls(made)

    def rows(self, train: int, held_out: int) -> Mapping[str, Sequence[Row]]:
        own = self._environment.get_dataset().to_list()
        if self._environment.build_eval_dataset() is not None:
            self._rows = {"train": own[:train], "eval": self._environment.get_eval_dataset().to_list()[:held_out]}
        else:
            self._rows = held_out_rows(own, train, held_out)
        found = {}
        for split, rows in self._rows.items():
            told = [_answer(row) for row in rows]
            known = [None] * len(told) if _are_places(told) else told
            found[split] = [
                Row(number, _messages(row["prompt"]), answer, place)
                for number, (row, answer, place) in enumerate(zip(rows, known, told, strict=True))
            ]
        return found

    async def open(self) -> None:
        """An environment of this interface has nothing to open."""

    async def close(self) -> None:
        await self._environment._teardown()

    async def play(self, split: str, number: int, endpoint: Endpoint) -> Played:
        import verifiers as vf
        from openai import AsyncOpenAI
        from verifiers.clients import OpenAIChatCompletionsClient

        client = AsyncOpenAI(base_url=endpoint.url, api_key=endpoint.key, max_retries=0)
        try:
            row = dict(self._rows[split][number])
            state = await self._environment.rollout(row, OpenAIChatCompletionsClient(client), endpoint.model, {})
            error = state.get("error")
            if error is not None and not _is_models(error, vf):
                raise ToolUnavailableError(f"the environment failed: {_cause(error)}") from error
            if self.has_group_rewards:
                return self._played(state, None, {})
            errors = await self._scored(self._environment.rubric.score_rollout, state)
            await self._environment.rubric.cleanup(state)
        except (ToolUnavailableError, MemoryError):
            raise
        except Exception as error:  # the boundary to the environment's code
            raise ToolUnavailableError(f"the environment raised {error_line(error)}") from error
        finally:
            await client.close()
        return self._played(state, float(state["reward"]), errors)

    async def score_group(self, states: Sequence[Any]) -> Sequence[Played]:
        errors = await self._scored(self._environment.rubric.score_group, list(states))
        for state in states:
            await self._environment.rubric.cleanup(state)
        return [self._played(state, float(state["reward"]), errors) for state in states]

    async def _scored(self, score: Any, subject: Any) -> dict[str, str]:
        """Score it; the errors of reward functions, which verifiers takes for 0.

        Raises:
            ToolUnavailableError: one of them found a service down, which says nothing about the model.
        """
        raised: dict[str, BaseException] = {}
        token = _raised.set(raised)
        try:
            await score(subject)
        finally:
            _raised.reset(token)
        for name, error in raised.items():
            if is_infra_error(error):
                raise ToolUnavailableError(f"the reward function {name} failed: {error_line(error)}") from error
        return {name: error_line(error) for name, error in raised.items()}

    def _played(self, state: Any, reward: float | None, errors: Mapping[str, str]) -> Played:
        components = {name: float(value) for name, value in (state.get("metrics") or {}).items()}
        stop = str(state.get("stop_condition") or "")
        return Played(_last_text(state.get("completion")), reward, components, stop, errors, state)


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    """Keep the environment from handling the process's signals, which a run needs for its own orderly end.

    It also could not do so in any thread but the main one.
    """
    place = importlib.import_module("verifiers.envs.environment")
    own = place.signal
    place.signal = SimpleNamespace(**{**vars(own), "signal": lambda *_: None})  # type: ignore[attr-defined]
    try:
        yield
    finally:
        place.signal = own  # type: ignore[attr-defined]


def _rubrics(rubric: Any) -> Iterator[Any]:
    """A rubric, and those of which it is made."""
    yield rubric
    for each in getattr(rubric, "rubrics", ()):
        yield from _rubrics(each)


def _noting(function: Any) -> Any:
    """The function, which also notes what it raises, because a rubric takes that for 0."""

    @functools.wraps(function)
    async def noting(*arguments: Any, **named: Any) -> Any:
        try:
            given = function(*arguments, **named)
            return await given if inspect.isawaitable(given) else given
        except Exception as error:
            raised = _raised.get()
            if raised is not None:
                raised[getattr(function, "__name__", "reward")] = error
            raise

    return noting


def _is_models(error: BaseException, vf: Any) -> bool:
    """Whether the model's doing, or a limit of the run, has ended a rollout: it is scored as it is."""
    if isinstance(error, (vf.ToolError, vf.InvalidModelResponseError)):  # the second is raised of an empty answer
        return True
    link: BaseException | None = error
    while link is not None:
        if getattr(link, "code", None) in _LIMITS:
            return True
        link = link.__cause__ or link.__context__
    return False


def _cause(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return error_line(error)


def _answer(row: Mapping[str, Any]) -> str | None:
    answer = row.get("answer")
    return answer if isinstance(answer, str) and answer else None


def _are_places(answers: Sequence[str | None]) -> bool:
    """Whether the answers just count the rows: then an environment looks the real ones up by them."""
    numbers = [int(each) for each in answers if each is not None and each.isdecimal()]
    return len(numbers) == len(answers) > 1 and numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def _messages(prompt: Any) -> tuple[Message, ...]:
    if isinstance(prompt, str):
        return (Message("user", prompt),)
    return tuple(Message(_role(each), _text(_field(each, "content"))) for each in prompt)


def _role(message: Any) -> Any:
    role = str(_field(message, "role"))
    return role if role in ("system", "assistant") else "user"


def _field(message: Any, name: str) -> Any:
    return message.get(name) if isinstance(message, Mapping) else getattr(message, name, None)


def _text(content: Any) -> str:
    if isinstance(content, str) or content is None:
        return content or ""
    return "\n".join(str(_field(part, "text") or "") for part in content)


def _last_text(completion: Any) -> str:
    if isinstance(completion, str) or not completion:
        return completion or ""
    said = [each for each in completion if _field(each, "role") == "assistant"]
    return _text(_field(said[-1], "content")) if said else ""
