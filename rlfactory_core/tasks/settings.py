"""The sections of the configuration for a task's data."""

from __future__ import annotations

from typing import Literal

from rlfactory_core.settings import File, Section


class DataColumns(Section):
    """Column names of the data; the defaults are those of Search-R1 and RL-Factory. Dots reach into structs."""

    id: str = "extra_info.index"
    """A text or number that names the row; where it is missing or not unique, the row's position names it."""
    prompt: str = "prompt"
    """A text, or a list of messages in OpenAI's format."""
    answer: str = "reward_model.ground_truth.target"
    """The right answer, or several in a list."""
    slice: str = "data_source"
    """The name of a part of the data, whose results are also reported by themselves."""
    tools: str | None = "tools"
    """The tools that a row's episodes may use: a list of names, or of schemas in OpenAI's format. Null: all tools."""
    answer_after: str | None = "ask"
    """The text behind which the answer begins in its column, such as ####. Null: the answer is all that the column
    holds. ask: a run whose answers end like GSM8K's solutions is refused."""
    last_turn: Literal["ask", "drop", "keep"] = "ask"
    """A prompt that ends with a turn of the assistant. drop: without that turn, which is the answer. keep: the model
    speaks again after it. ask: the run is refused."""


class DataConfig(Section):
    """The user's own data, instead of the task's built-in samples."""

    train: File | None = None
    """The data to train on: JSONL, a JSON array or parquet."""
    eval: File | None = None
    """The held-out data."""
    columns: DataColumns = DataColumns()
