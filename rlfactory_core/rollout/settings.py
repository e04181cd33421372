"""The sections of the configuration for attempts and their sampling, and for a second speaker."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rlfactory_core.settings import Natural, Positive, Section


class LimitsConfig(Section):
    """One attempt's limits, which may differ between the tasks of a run."""

    max_turns: Positive = 8
    """Most turns of the model."""
    max_tool_calls: Positive = 16
    """Over the whole trajectory."""
    max_turn_tokens: Positive = 512
    """Tokens that the model samples in one turn."""
    max_tokens: Positive = 4096
    """Context and sampled tokens over the whole trajectory."""
    env_deadline_s: Annotated[float, Field(gt=0.0)] = 600.0
    """Seconds for the start and for each step of an environment of your own; a later one is an infra fault."""
    context: Literal["keep", "drop_thinking", "compact", "summarize"] = "keep"
    """What a turn sees of earlier ones. keep: all of it. drop_thinking: what the model's chat template keeps of it, as
    at inference. compact: beyond ``context_tokens`` the oldest tools' results are removed. summarize: beyond them the
    model writes a summary, which takes the place of all but the prompt, and is trained like its other turns."""
    context_tokens: Natural = 0
    """Of context=compact and summarize; 0: half of ``max_tokens``."""
    retries: Natural = 1
    """How often an attempt that an infrastructure fault spoilt is played again before it is masked, with what it has
    sampled; not if ``deterministic``."""


class RolloutConfig(LimitsConfig):
    """One attempt's limits, and how it samples while training."""

    temperature: Annotated[float, Field(ge=0.0)] = 1.0
    """Sampling temperature."""
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """Share of the probability from which tokens are sampled."""
    deterministic: bool = False
    """Tool results are taken in the order of the calls, so that a seed gives the same run, bit for bit (CPU)."""
    slots: Positive = 128
    """Trajectories that one process decodes at once. If it is not set, fewer are taken where so many do not fit."""


class UserOptions(Section):
    """Options of a task with a user of another model; the task's ``Config`` inherits them."""

    user: str = ""
    """The address of the user's model, an OpenAI-compatible server: http://HOST:PORT/v1."""
    user_model: str | None = None
    """Its id there, if the server has several."""
    user_temperature: Annotated[float, Field(ge=0.0)] = 0.0
    """Its sampling temperature."""
