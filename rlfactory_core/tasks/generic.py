"""The task of a run without ``--plugin``: the user's own data and the tools of the configuration."""

from __future__ import annotations

from dataclasses import replace

from rlfactory_core.settings import Section
from rlfactory_core.tasks.task import Task
from rlfactory_core.types import Message, Sample

NAME = "tools"
SYSTEM = (
    "Answer the user's question. If you have tools, use them to find out what you need, several times where once is "
    "not enough. Then give the final answer, as short as it can be, within <answer> and </answer>."
)


class GenericTask(Task):
    """Samples from ``--data`` and ``--eval-data``, tools from ``--mcp``, rewards from ``--reward``."""

    class Config(Section):
        system: str | None = SYSTEM
        """The system message for rows without one; if empty, none is added."""

    config: Config

    def adapt(self, sample: Sample) -> Sample:
        messages = sample.messages
        if not self.config.system or messages[0].role == "system":
            return sample
        return replace(sample, prompt=(Message("system", self.config.system), *messages))
