"""TextArena's single-player games.

A game draws from Python's global generator, at its reset and during its steps, so that games that are played at once
would change each other. Here each game keeps that generator's state for itself, and one game moves at a time; one that
hangs does not hold up the others.
"""

from __future__ import annotations

import importlib
import random
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from rlfactory_core.errors import UsageError, nearest
from rlfactory_environments.episodes import imported
from rlfactory_environments.gymnasium.game import Seen
from rlfactory_environments.gymnasium.generator import SharedGenerator

Value = TypeVar("Value")

PREFIX = "TextArena/"
_GENERATOR = SharedGenerator()  # Python's is one for the process
_MISSING = re.compile(r"Resource\W+(?:\d+m)?(\w+)")  # in NLTK's errors, with or without colours
_BRACKETED = re.compile(r"\[([^\[\]\n]{1,40})\]")


class TextArenaGames:
    """Makes games of one id.

    Args:
        id: as for ``textarena.make``.
        arguments: of the game.
        rules: what the model reads before the game's own prompt.
        patience_s: how long another game may move until this one goes on without waiting for it.

    Raises:
        MissingExtraError: TextArena is not installed.
    """

    reward_bounds = (-1.0, 1.0)  # of an episode; an illegal move may end a game with -1

    def __init__(self, id: str, arguments: Mapping[str, Any], rules: str, patience_s: float = 15.0) -> None:  # noqa: A002
        self._arena = imported("textarena", "TextArena")
        self._id, self._arguments, self._rules, self._patience_s = id, dict(arguments), rules, patience_s

    def check(self) -> None:
        """
        Raises:
            UsageError: there is no such game here, or it cannot be played.
        """
        known = importlib.import_module("textarena.envs.registration").ENV_REGISTRY
        if self._id not in known:
            raise UsageError(f"TextArena has no game '{self._id}'. {nearest(self._id, known)}")
        game = None
        try:
            game = self.make()
            game.reset(1)
        except LookupError as error:
            missing = _MISSING.search(str(error))
            raise UsageError(
                f"TextArena's game '{self._id}' cannot be made here, because a resource of NLTK is missing: "
                f"{missing[1] if missing else error!r:.200}. Get it: python -m nltk.downloader NAME"
            ) from error
        except AssertionError as error:
            raise UsageError(
                f"TextArena's game '{self._id}' is for several players ({error}), and TextArena has no opponents "
                "but models of paid services. Single-player games can be trained; their list is in TextArena's "
                "documentation."
            ) from error
        except Exception as error:  # the boundary to the game's code
            raise UsageError(f"TextArena's game '{self._id}' cannot be made: {error!r:.300}") from error
        finally:
            if game is not None:
                game.close()

    def make(self) -> TextArenaGame:
        return TextArenaGame(self._arena.make(self._id, **self._arguments), self._rules, self._patience_s)


class TextArenaGame:
    """One game for one player."""

    def __init__(self, game: Any, rules: str, patience_s: float) -> None:
        self._game, self._rules, self._patience_s = game, rules, patience_s
        self._generator: object = None  # the state of Python's generator after this game's last move
        self._seen = self._text = ""

    def reset(self, seed: int) -> Seen:
        def begin() -> str:
            random.seed(seed)
            self._game.reset(num_players=1, seed=seed)
            return self._observe()

        self._text = self._seen = self._alone(begin)
        return Seen("\n\n".join(filter(None, (self._rules, self._seen.strip()))))

    def step(self, reply: str) -> Seen:
        def move() -> tuple[bool, str]:
            done, _ = self._game.step(action=reply)
            return bool(done), "" if done else self._observe()

        done, text = self._alone(move)
        if done:
            rewards, infos = self._game.close()
            mine = (infos or {}).get(0, {})
            reason, reward = str(mine.get("reason", "")), float((rewards or {}).get(0, 0.0))
            facts = {"reason": reason, "invalid_move": bool(mine.get("invalid_move"))}
            return Seen(reason, reward=reward, terminated=True, facts=facts)
        # Most games show the whole conversation; the model has its beginning already.
        new = text[len(self._seen) :] if text.startswith(self._seen) else text
        self._seen, self._text = text, new
        return Seen(self._without_echo(new, reply).strip())

    def actions(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(f"[{each}]" for each in _BRACKETED.findall(self._text) if each != "GAME")) or (
            "[1]",
        )

    def close(self) -> None:
        """A game holds nothing."""

    def _observe(self) -> str:
        _, observation = self._game.get_observation()
        if isinstance(observation, str):
            return observation
        return "\n".join(str(message) for _, message, *_ in observation)  # of a game without wrappers

    def _without_echo(self, text: str, reply: str) -> str:
        """The text without the player's own move, which a game's log repeats."""
        lines = text.lstrip("\n")
        name = self._game.state.role_mapping.get(0, "Player 0")
        for move in (reply, f"[{reply}]"):
            for speaker in (name, "GAME"):  # some games log a move as if it were their own
                lines = lines.removeprefix(f"[{speaker}] {move}\n")
        return lines

    def _alone(self, work: Callable[[], Value]) -> Value:
        """Run it with this game's state of Python's generator; the process gets its own back."""
        value, self._generator = _GENERATOR.run(work, self._generator, self._patience_s)
        return value
