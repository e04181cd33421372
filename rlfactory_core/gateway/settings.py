"""The section of the configuration for an agent that is a program of the user's own."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rlfactory_core.settings import Natural, Positive, Section


class AgentConfig(Section):
    """An agent that is a program of the user's own, instead of the task's environment and tools."""

    command: str = ""
    """Such as ``python my_agent.py``; empty: the task's own loop."""
    environment: tuple[str, ...] = ()
    """Names of variables that the program gets beside those of the model's address."""
    workers: Natural = 0
    """Processes that play one attempt after the other; 0: a fresh process for each attempt."""
    concurrency: Positive = 16
    """Processes of the program at once, if each attempt has one of its own; the other attempts wait."""
    deadline_s: Annotated[float, Field(gt=0.0)] = 600.0
    """For one attempt."""
