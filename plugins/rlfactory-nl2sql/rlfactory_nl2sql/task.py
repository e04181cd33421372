"""The text-to-SQL task: a question, tools to inspect its database, and a query as the answer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, field_validator

from rlfactory_core import Message, Sample, Section, Task
from rlfactory_core.cache import cache_root
from rlfactory_core.errors import UsageError, VerifierError
from rlfactory_core.rewards import accepted_answers
from rlfactory_core.settings import Natural, Positive
from rlfactory_core.tasks import DataColumns
from rlfactory_core.tiny import TinyModelRecipe, answer_text, call
from rlfactory_nl2sql.checks.parsing import NAMES, parse_query
from rlfactory_nl2sql.connection import QueryError, QueryLimits
from rlfactory_nl2sql.data import DatabaseFolder, load_questions
from rlfactory_nl2sql.databases.reference import DatabaseRef, parse_reference, path_in_data, reference_in_data
from rlfactory_nl2sql.tools import DESCRIBE, LIST_TABLES, DatabaseTools, NoDatabase
from rlfactory_nl2sql.verification.pool import WorkerPool

SYSTEM = (
    "Answer the question with one SQL query for a {dialect} database. Look at the database first: list its tables, "
    "describe those that you need, and try queries out; one that fails or surprises can be mended. Then write the "
    "query that gives exactly what is asked for, without other columns, as <answer>SELECT ...</answer>."
)
_BUILT_IN = re.compile(r"[a-z]+-\d+")  # the names of built-in databases
_SHOWN = 200  # characters of a query that a message quotes


class Nl2SqlTask(Task):
    """Questions about the user's databases; without any, about built-in ones generated from the run's seed.

    Attributes:
        pool: the processes that run queries, for the tools and the rewards.
        checked: the questions about the user's databases that `check` was given, of which the reward ``execution``
            counts those that cannot be verified.
    """

    class Config(Section):
        """Options: ``--db``, ``--rows`` and so on, or ``task.NAME=VALUE``."""

        db: str | None = None
        """The databases: a file, a URL, or a folder of <id>/<id>.sqlite."""
        other_databases: tuple[str, ...] = ()
        """URLs, and folders besides the data's own, that rows may name as their database without ``db``."""
        system: str | None = SYSTEM
        """The system message of your own questions that have none; empty: none is added."""
        rows: Positive = 10
        """Rows of a result that the model is shown."""
        seconds: Annotated[float, Field(gt=0.0)] = 5.0
        """How long a query of the model may run."""
        workers: Natural = 0
        """Processes that run queries; 0: as many as cores."""
        skip_unreadable: bool = False
        """Leave out the questions whose reference SQL cannot be read, instead of refusing all of them."""

        @field_validator("db", "other_databases", mode="before")
        @classmethod
        def _absolute(cls, given: Any) -> Any:
            """Make a path absolute, since other processes may have another working directory."""
            if isinstance(given, (list, tuple)):
                return tuple(cls._absolute(each) for each in given)
            is_path = isinstance(given, (str, Path)) and "://" not in str(given)
            return str(Path(given).expanduser().absolute()) if is_path else given

    config: Config
    rewards = {"execution": 1.0, "valid_sql": 0.1, "format": 0.1}
    defaults = {"rollout": {"max_turns": 8, "max_tool_calls": 12}}
    tiny_defaults = {
        "rollout": {"max_turn_tokens": 96, "max_tokens": 1024},
        "train": {
            "steps": 110,
            "until": {"execution": 0.9},
            "prompts_per_step": 16,
            "updates_per_step": 4,
            "lr": 6e-4,
            "muon_lr": 2e-3,
            "schedule": "linear",
        },
        "eval": {"every": 20, "limit": 200, "attempts": 2},
    }

    def __init__(self, config: Mapping[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(config, seed)
        db = self.config.db
        self._folder = DatabaseFolder(Path(db)) if db and Path(db).is_dir() else None
        self._only = parse_reference(db) if db and self._folder is None else None
        for url in self.config.other_databases:
            if "://" in url:
                parse_reference(url)  # refuses a password before the configuration is stored
        self.pool = WorkerPool(self.config.workers, folders=(db or str(cache_root() / "nl2sql"),))
        self.checked: list[Sample] = []
        shared = self.pool, self.reference, QueryLimits(seconds=self.config.seconds), self.config.rows
        self._tools, self._control = DatabaseTools(*shared), NoDatabase(*shared)
        self.tools = self._tools.tools

    async def open(self) -> None:
        if self._only is not None:
            await self._tools.check(self._only)  # fail early if the server does not answer

    async def close(self) -> None:
        await self.pool.close()

    def controls(self) -> Mapping[str, Sequence[Any]]:
        return {"no_database": self._control.tools}

    def reference(self, sample: Sample) -> DatabaseRef:
        """The database that a sample asks about.

        Raises:
            UsageError: the sample names no database, or one that does not exist.
        """
        try:
            return self._only or self._named(str(sample.metadata.get("database", "")))
        except UsageError as error:
            where = "" if self.config.db else " Say where it is: --db PATH, URL, or FOLDER with <id>/<id>.sqlite."
            raise UsageError(f"The database of sample '{sample.id}' is not there. {error}{where}") from error

    @lru_cache(maxsize=4096)  # noqa: B019 - one task lives as long as its process
    def _named(self, name: str) -> DatabaseRef:
        if not name:
            raise UsageError("It names none, in a column 'db_id' or 'database'; --db PATH or URL gives one for all.")
        if self._folder is not None:
            return self._folder.reference(name)
        if not _BUILT_IN.fullmatch(name):
            return reference_in_data(name, self.config.other_databases)
        from rlfactory_nl2sql.worlds.world import world_file

        return DatabaseRef("sqlite", str(world_file(self.seed, name)))

    def load(self, path: Path, columns: DataColumns, split: str) -> Sequence[Sample]:
        """Read the layouts of Spider and BIRD too, unless columns are named. Without ``db``, a question's database is a
        path in the file's folder, or what ``other_databases`` allows."""
        found = load_questions(path, split) if columns == DataColumns() else None
        samples = []
        for sample in found or super().load(path, columns, split):
            name = str(sample.metadata.get("database") or sample.metadata.get("db_id") or "")
            if name and self.config.db is None and "://" not in name:
                name = path_in_data(name, path.parent, self.config.other_databases)
            samples.append(replace(sample, metadata={**sample.metadata, "database": name}))
        skip = self.config.skip_unreadable
        return [sample for sample in samples if not skip or self._unreadable(sample) is None]

    def adapt(self, sample: Sample) -> Sample:
        messages = sample.messages
        if not self.config.system or messages[0].role == "system":
            return sample
        system = self.config.system.replace("{dialect}", NAMES[self.reference(sample).kind])
        return replace(sample, prompt=(Message("system", system), *messages))

    def check(self, samples: Sequence[Sample]) -> None:
        given = self.config.db is not None
        asked = [each for each in samples if given or not _BUILT_IN.fullmatch(str(each.metadata.get("database", "")))]
        self.checked += asked
        unreadable = [(sample, reason) for sample in asked if (reason := self._unreadable(sample))]
        if unreadable:
            sample, reason = unreadable[0]
            raise UsageError(
                f"The SQL of {len(unreadable)} of {len(samples)} questions cannot be read, so no answer to them could "
                f"be verified. The first is sample '{sample.id}': {reason} It is {str(sample.answer)[:_SHOWN]!r}. Mend "
                "the data, or leave these questions out: --skip-unreadable."
            )

    def _unreadable(self, sample: Sample) -> str | None:
        """Why a question's SQL cannot be used; None if it can."""
        try:
            for sql in accepted_answers(sample):
                parse_query(sql, self.reference(sample).kind)
        except (QueryError, VerifierError) as error:
            return str(error)
        return None

    def samples(self, split: str) -> Iterable[Sample]:
        """Questions about built-in databases. Evaluation has databases of its own."""
        if self.config.db is not None:
            return ()
        from rlfactory_nl2sql.worlds.world import samples

        return samples(self.seed, split)

    def solve(self, sample: Sample, messages: Sequence[Message]) -> Message:
        """Inspect all needed tables in one turn, because a reward for few turns may be in use; then answer with the
        first accepted query."""
        answer = accepted_answers(sample)[0]
        if any(message.role == "tool" for message in messages):
            return Message("assistant", answer_text(answer))
        tables = sorted(parse_query(answer, self.reference(sample).kind).tables)
        look = (call(LIST_TABLES), *(call(DESCRIBE, table=table) for table in tables))
        return Message("assistant", "", tool_calls=look)

    def tiny_model(self) -> TinyModelRecipe | None:
        if self.config.db is not None:
            return None
        from rlfactory_nl2sql.worlds.tiny import recipe

        return recipe(self.seed, [each.spec for each in self.tools])
