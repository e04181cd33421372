"""The task ``gymnasium``: any environment of Gymnasium or TextArena that can be played in text."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

from pydantic import Field

from rlfactory_core import Message, Sample, ToolContext
from rlfactory_core.errors import ConfigError
from rlfactory_core.protocols import Env, ToolManager
from rlfactory_core.settings import Natural, Positive
from rlfactory_core.utils.threads import BlockingPool
from rlfactory_environments.episodes import ENV_REWARDS, SolverOptions, SolverTask, seed_samples
from rlfactory_environments.gymnasium.env import GameEnv
from rlfactory_environments.gymnasium.gym_game import GymGames
from rlfactory_environments.gymnasium.textarena_game import PREFIX, TextArenaGames


class GymnasiumTask(SolverTask):
    """Plays one environment; each episode has an instance of its own, and samples differ by their seeds."""

    class Config(SolverOptions):
        """Which environment is played, and how."""

        environment: str = ""
        """Its id: as for gymnasium.make (FrozenLake-v1, or MODULE:ID for those of other packages), or TextArena/ID."""
        arguments: dict[str, Any] = {}
        """Arguments of the environment's maker, such as {"is_slippery": false}."""
        rules: str = ""
        """What the model reads about the environment; by default its own description."""
        system: str = ""
        """A system message; by default there is none."""
        action_names: str = ""
        """Names of a discrete environment's actions, in their order, with commas between them."""
        train_seeds: Positive = 512
        """Training samples, one per seed."""
        eval_seeds: Positive = 64
        """Held-out samples, likewise."""
        deadline_s: float = Field(30.0, gt=0)
        """Time limit per call of the environment, in seconds."""
        illegal_actions: Natural = 2
        """Illegal actions in a row that are answered with what is legal; one more ends the episode."""
        illegal_reward: float = 0.0
        """The reward of an illegal action. Where every step costs something it has to be lower than what a game can
        cost, else a model learns to end the game by saying nothing."""

    config: Config
    rewards = ENV_REWARDS
    defaults: ClassVar[Mapping[str, Any]] = {"rollout": {"max_turns": 50}}

    def __init__(self, config: Mapping[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(config, seed)
        self._pool = BlockingPool("environment")
        self._checked = False

    @cached_property
    def games(self) -> GymGames | TextArenaGames:
        """
        Raises:
            ConfigError: no environment is named.
            MissingExtraError: its package is not installed.
        """
        config = self.config
        if not config.environment:
            raise ConfigError("Name the environment: --environment FrozenLake-v1, or TextArena/FrozenLake-v0.")
        if config.environment.startswith(PREFIX):
            name = config.environment.removeprefix(PREFIX)
            # Half of the deadline is left then for a game's own move.
            return TextArenaGames(name, config.arguments, config.rules, config.deadline_s / 2)
        names = [name.strip() for name in config.action_names.split(",") if name.strip()]
        return GymGames(config.environment, config.arguments, names, config.rules)

    def samples(self, split: str) -> Iterable[Sample]:
        count = self.config.eval_seeds if split == "eval" else self.config.train_seeds
        return seed_samples(split, count, self.config.environment)

    def check(self, samples: Sequence[Sample]) -> None:
        if not self._checked:
            self.games.check()
            self._checked = True
        self.bound(*self.games.reward_bounds)

    async def close(self) -> None:
        self._pool.close()

    def make_env(self, sample: Sample, manager: ToolManager, context: ToolContext) -> Env:
        config = self.config
        return GameEnv(
            sample,
            self.games.make,
            self._pool,
            deadline_s=config.deadline_s,
            illegal=config.illegal_actions,
            illegal_reward=config.illegal_reward,
            system=config.system,
        )

    def solve(self, sample: Sample, messages: Sequence[Message]) -> Message:
        """What the solver says; without one, a random action, so that a tiny model learns what actions look like."""
        if self.solver is not None:
            return self.solver(sample, messages)
        turn = sum(message.role == "assistant" for message in messages)
        rng = random.Random(f"{self.seed} {sample.id} {turn}")
        return Message("assistant", rng.choice(self._known_actions))

    @cached_property
    def _known_actions(self) -> Sequence[str]:
        game = self.games.make()
        try:
            game.reset(1)
            return game.actions()
        finally:
            game.close()
