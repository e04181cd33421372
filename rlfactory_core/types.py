"""The nouns: frozen data that every part of rlfactory passes on.

Data flows one way: `Sample` -> `Turn`s -> `Trajectory` -> `Group` -> `TrainBatch`. A new stage makes a new object
(``dataclasses.replace``), nothing is changed in place. Behaviour stands in `protocols`.

Token ids are Python tuples of ints, log-probs natural logarithms, times seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain
from typing import Any, Literal

__all__ = [
    "Fault",
    "FaultKind",
    "Group",
    "Message",
    "Role",
    "Sample",
    "SampledTokens",
    "SamplingParams",
    "Score",
    "StopReason",
    "ToolCall",
    "ToolResult",
    "ToolSpec",
    "TrainBatch",
    "TrainSequence",
    "Trajectory",
    "Turn",
    "Verdict",
]

Role = Literal["system", "user", "assistant", "tool"]


class FaultKind(str, Enum):
    """Whose fault a failure is. ``policy`` and ``tool`` faults are observations; ``infra`` and ``verifier`` mask."""

    POLICY = "policy"  # the model called the tool wrongly: bad JSON, unknown tool, invalid arguments
    TOOL = "tool"  # the tool ran and said no
    INFRA = "infra"  # timeout, crash, lost connection: nobody's answer
    VERIFIER = "verifier"  # a scorer or verifier could not find out


class StopReason(str, Enum):
    """Every way in which a trajectory can end."""

    FINAL_ANSWER = "final_answer"  # the turn holds a final answer
    NO_TOOL_CALL = "no_tool_call"  # the turn calls nothing and answers nothing
    MAX_TURNS = "max_turns"
    LENGTH = "length"  # a token budget ran out, within a turn or over the trajectory
    ENV_DONE = "env_done"
    TOOL_BUDGET = "tool_budget"  # more tool calls than allowed
    FAULT = "fault"  # an infra fault made going on pointless


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """What the model is told about a tool."""

    name: str
    description: str
    parameters: Mapping[str, Any]  # JSON schema of the arguments object


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call that the model wrote. Exactly one of ``arguments`` and ``error`` is set."""

    id: str
    name: str
    arguments_text: str  # as the model wrote it
    arguments: Mapping[str, Any] | None = None
    error: str | None = None  # why the text is not a call, in words that the model can learn from


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What came back for one call; ``content`` is exactly what the model sees."""

    call_id: str
    name: str
    content: str
    fault: FaultKind | None = None
    latency_s: float = 0.0  # from invoke to result, waiting and retries included
    attempts: int = 1  # how often the tool really ran; 0 when refused before
    cached: bool = False
    truncated: bool = False
    size_bytes: int = 0  # of the untruncated result


@dataclass(frozen=True, slots=True)
class Message:
    """One chat turn."""

    role: Role
    content: str
    reasoning: str = ""  # what stood in the thinking block, without its tags
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None  # for role "tool": which call this answers
    name: str | None = None  # for role "tool": the tool


@dataclass(frozen=True, slots=True)
class Sample:
    """One row of data.

    Args:
        id: unique within its split.
        prompt: the user's text, or whole messages.
        answer: the ground truth that scorers compare with; a string, or several accepted ones.
    """

    id: str
    prompt: str | tuple[Message, ...]
    answer: Any = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    split: str = "train"
    slice: str = ""  # evaluation is also reported per slice, for example "two_hop"

    @property
    def messages(self) -> tuple[Message, ...]:
        """The prompt as messages."""
        return (Message("user", self.prompt),) if isinstance(self.prompt, str) else self.prompt


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to sample one turn."""

    max_tokens: int
    temperature: float = 1.0  # 0 is greedy
    top_p: float = 1.0
    stop_token_ids: tuple[int, ...] = ()
    seed: int = 0  # the same seed, prompt and weights give the same tokens, whatever else is sampled beside


@dataclass(frozen=True, slots=True)
class SampledTokens:
    """What a sampler returns; the stop token, where one was sampled, is the last id."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]  # at the temperature sampled at (1 for greedy), before top-p; same length as token_ids
    finish: Literal["stop", "length"]
    version: int = 0  # of the weights that sampled the first token (updates since the start)


@dataclass(frozen=True, slots=True)
class Fault:
    """One failure within a trajectory."""

    kind: FaultKind
    source: str  # the tool or scorer
    message: str
    turn: int = -1  # -1: after the last turn, in scoring


@dataclass(frozen=True, slots=True)
class Verdict:
    """Truth found by a verifier. ``passed`` None: could not be found out."""

    passed: bool | None
    reasons: tuple[str, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Score:
    """A reward with its named components, for the outcome and, where given, for each turn."""

    value: float
    components: Mapping[str, float] = field(default_factory=dict)  # unweighted, by scorer name
    turns: tuple[float, ...] = ()  # weighted process reward per turn; empty or one number a turn
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    latency_s: Mapping[str, float] = field(default_factory=dict)  # by scorer name
    counts: Mapping[str, float] = field(default_factory=dict)  # such as requests; summed over a step, masked or not
    seconds: float = 0.0  # in which something was scoring it: less than the sum of latency_s where scorers overlap


@dataclass(frozen=True, slots=True)
class Turn:
    """What was appended to the context, what the model then sampled, and what came of it."""

    context_ids: tuple[int, ...]  # the whole prompt in the first turn, the observation's ids later
    sampled_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    message: Message  # the sampled ids, parsed
    results: tuple[ToolResult, ...] = ()
    reward: float = 0.0  # the environment's step reward
    finish: Literal["stop", "length"] = "stop"
    version: int = 0
    sample_s: float = 0.0
    tools_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Trajectory:
    """All turns of one attempt at one sample.

    ``ids``, ``loss_mask`` and ``logprobs`` have the same length: context tokens have mask 0 and log-prob 0.0, and
    ``sum(loss_mask)`` is the number of sampled ids.
    """

    sample: Sample
    attempt: int
    turns: tuple[Turn, ...]
    stop: StopReason
    faults: tuple[Fault, ...] = ()
    score: Score | None = None
    seconds: float = 0.0
    tools: tuple[ToolSpec, ...] = ()  # what the model was offered

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(chain.from_iterable(part for turn in self.turns for part in (turn.context_ids, turn.sampled_ids)))

    @property
    def loss_mask(self) -> tuple[int, ...]:
        mask: list[int] = []
        for turn in self.turns:
            mask += [0] * len(turn.context_ids) + [1] * len(turn.sampled_ids)
        return tuple(mask)

    @property
    def logprobs(self) -> tuple[float, ...]:
        values: list[float] = []
        for turn in self.turns:
            values += [0.0] * len(turn.context_ids)
            values += turn.logprobs
        return tuple(values)

    @property
    def num_sampled(self) -> int:
        return sum(len(turn.sampled_ids) for turn in self.turns)

    @property
    def num_tool_calls(self) -> int:
        return sum(len(turn.message.tool_calls) for turn in self.turns)

    @property
    def masked(self) -> bool:
        """True where an infra or verifier fault spoilt it: left out of the update, never scored 0."""
        return any(fault.kind in (FaultKind.INFRA, FaultKind.VERIFIER) for fault in self.faults)

    @property
    def reward(self) -> float:
        """The whole reward: outcome, process rewards and the environment's step rewards."""
        return (self.score.value + sum(self.score.turns) if self.score else 0.0) + sum(t.reward for t in self.turns)


@dataclass(frozen=True, slots=True)
class Group:
    """All attempts at one sample: GRPO's unit."""

    sample: Sample
    trajectories: tuple[Trajectory, ...]


@dataclass(frozen=True, slots=True)
class TrainSequence:
    """One trajectory as the update sees it; all four have the same length [tokens]."""

    ids: tuple[int, ...]
    loss_mask: tuple[int, ...]  # 1 exactly on sampled ids
    advantages: tuple[float, ...]  # 0.0 where the mask is 0
    logprobs: tuple[float, ...]  # of the behaviour policy, 0.0 where the mask is 0
    version: int = 0  # of the weights that sampled it


@dataclass(frozen=True, slots=True)
class TrainBatch:
    """What one optimizer step learns from, already cut into micro-batches that fit the token budget."""

    microbatches: tuple[tuple[TrainSequence, ...], ...]
    num_tokens: int  # sampled ids over all micro-batches
