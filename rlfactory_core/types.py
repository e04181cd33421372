"""The data types that all parts of rlfactory share, as frozen dataclasses.

Data flows one way: `Sample` -> `Turn`s -> `Trajectory` -> `Group` -> `TrainBatch`. Each stage makes a new object
(``dataclasses.replace``) and changes none in place.

Token ids are tuples of ints. Log-probs are natural logarithms. Times are in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from typing import Any, Literal

__all__ = [
    "BRANCH",
    "Fault",
    "FaultCode",
    "FaultKind",
    "Group",
    "Message",
    "Role",
    "Row",
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


class FaultKind(StrEnum):
    """The cause of a failure.

    The model sees a ``policy`` or ``tool`` fault as the result of its call. An ``infra`` or ``verifier`` fault masks
    the trajectory; see `Fault.masks`. After an ``agent`` fault there is no answer, and the trajectory is scored so.
    """

    POLICY = "policy"  # a wrong call by the model: bad JSON, unknown tool, invalid arguments
    TOOL = "tool"  # the tool ran and reported an error
    INFRA = "infra"  # no result because of a timeout, a crash or a lost connection
    VERIFIER = "verifier"  # a scorer or verifier could not decide
    AGENT = "agent"  # the user's own agent failed: it raised, exited with an error, or gave no answer


FaultCode = Literal["", "crashed", "late", "undecided", "unusable"]
"""The kind of a fault, for programs: an exception; no answer within the deadline; a scorer that raised `VerifierError`;
a result that is not a valid score. Empty if kind and source tell enough."""


class StopReason(StrEnum):
    """Why a trajectory ended."""

    FINAL_ANSWER = "final_answer"  # the turn has a final answer
    NO_TOOL_CALL = "no_tool_call"  # the turn has neither a call nor a final answer
    MAX_TURNS = "max_turns"
    LENGTH = "length"  # a token budget ran out, within a turn or over the trajectory
    ENV_DONE = "env_done"
    TOOL_BUDGET = "tool_budget"  # more tool calls than allowed
    MAX_ROWS = "max_rows"  # an agent rewrote its history more often than allowed
    AGENT_FAILED = "agent_failed"  # the user's own agent raised, exited with an error, or gave no answer
    FAULT = "fault"  # an infra fault ended the episode


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """The description of a tool for the model."""

    name: str
    description: str
    parameters: Mapping[str, Any]  # JSON schema of the arguments object

    @property
    def function_schema(self) -> dict[str, Any]:
        """The tool in OpenAI's format, which chat templates and servers expect."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call that the model wrote. Exactly one of ``arguments`` and ``error`` is set."""

    id: str
    name: str
    arguments_text: str  # as the model wrote it
    arguments: Mapping[str, Any] | None = None
    error: str | None = None  # why the text is not a valid call, as feedback for the model


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of one call; ``content`` is exactly what the model sees."""

    call_id: str
    name: str
    content: str
    fault: FaultKind | None = None
    latency_s: float = 0.0  # from invoke to result, with waiting and retries
    attempts: int = 1  # how often the tool ran; 0 for a refused call
    cached: bool = False
    truncated: bool = False
    size_bytes: int = 0  # of the result before truncation
    reason: str = ""  # why the call has no result; shown to the user, hidden from the model

    @property
    def message(self) -> Message:
        """What the model reads."""
        return Message("tool", self.content, tool_call_id=self.call_id, name=self.name)


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation."""

    role: Role
    content: str
    reasoning: str = ""  # the text of the thinking block, without its tags
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None  # for role "tool": the id of the call
    name: str | None = None  # for role "tool": the tool's name


@dataclass(frozen=True, slots=True)
class Sample:
    """One row of data.

    Args:
        id: unique within its split.
        prompt: the user's text, or whole messages.
        answer: the ground truth that scorers compare with: a string, or several accepted strings.
    """

    id: str
    prompt: str | tuple[Message, ...]
    answer: Any = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    split: str = "train"
    slice: str = ""  # evaluation is also reported per slice, for example "two_hop"
    task: str = ""  # the name of its task, in a run of several
    tools: tuple[str, ...] | None = None  # names of those that its episodes may use; None: all that the task has

    @property
    def slices(self) -> tuple[str, ...]:
        """The names under which its metrics are also reported: its slice, and in a run of several tasks its task."""
        if not self.task:
            return (self.slice,) if self.slice else ()
        return (self.task, f"{self.task}/{self.slice}") if self.slice else (self.task,)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The prompt as messages; a text becomes one user message."""
        return (Message("user", self.prompt),) if isinstance(self.prompt, str) else self.prompt


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Parameters for sampling one turn."""

    max_tokens: int
    temperature: float = 1.0  # 0 is greedy
    top_p: float = 1.0
    stop_token_ids: tuple[int, ...] = ()
    seed: int = 0  # the same seed, prompt and weights give the same tokens, whatever else is in the batch
    images: tuple[str, ...] = ()  # the hashes of all images that the ids show, in order; there may be more at the end


@dataclass(frozen=True, slots=True)
class SampledTokens:
    """A sampler's result. If a stop token was sampled, it is the last id."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]  # as long as token_ids; at the sampling temperature (greedy: at 1), before top-p
    finish: Literal["stop", "length"]
    version: int = 0  # of the weights that sampled the first token: the number of updates before
    versions: tuple[int, ...] = ()  # one for each token if the weights changed within the turn


@dataclass(frozen=True, slots=True)
class Fault:
    """One failure within a trajectory."""

    kind: FaultKind
    source: str  # the tool or scorer
    message: str
    turn: int = -1  # -1: in scoring, after the last turn
    code: FaultCode = ""
    measured: bool = False  # of a reward with weight 0, which is only measured and decides nothing

    @property
    def masks(self) -> bool:
        """Whether it leaves the trajectory out of the update."""
        return self.kind in (FaultKind.INFRA, FaultKind.VERIFIER) and not self.measured


@dataclass(frozen=True, slots=True)
class Verdict:
    """A verifier's decision; ``passed`` is None if it could not decide."""

    passed: bool | None
    reasons: tuple[str, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Score:
    """A reward: the outcome's value, its components by name, and optional rewards for each turn."""

    value: float
    components: Mapping[str, float] = field(default_factory=dict)  # unweighted, by scorer name
    turn_rewards: tuple[float, ...] = ()  # weighted process rewards; empty, or one number for each turn
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    latency_s: Mapping[str, float] = field(default_factory=dict)  # by scorer name
    counts: Mapping[str, float] = field(default_factory=dict)  # such as requests; a step's metrics have their sums
    seconds: float = 0.0  # of scoring; scorers run in parallel, so the sum of latency_s may be larger


@dataclass(frozen=True, slots=True)
class TaughtToken:
    """What a teacher thinks at the place of a sampled token; log-probs at temperature 1."""

    logprob: float  # of the sampled token
    likely: tuple[int, ...] = ()  # the ids that it finds likeliest there
    logprobs: tuple[float, ...] = ()  # of these


PROMPT = "prompt"  # `Fault.source` of an attempt whose prompt leaves no room for an answer
BRANCH = "branch"  # `Turn.fork` of a row that begins with the ids of another row, up to an earlier turn


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn: the ids that were appended to the context, the ids that the model sampled, and the tools' results."""

    context_ids: tuple[int, ...]  # in the first turn the whole prompt, later the observation
    sampled_ids: tuple[int, ...]
    logprobs: tuple[float, ...]  # of the sampled ids
    message: Message  # parsed from the sampled ids
    results: tuple[ToolResult, ...] = ()
    reward: float = 0.0  # the environment's step reward
    finish: Literal["stop", "length"] = "stop"
    version: int = 0
    sample_s: float = 0.0
    tools_s: float = 0.0
    row: int = 0  # the `Row` of the trajectory that it belongs to
    fork: str = ""  # why it begins a row of its own, such as ``edited_history``; empty in a trajectory's first row
    versions: tuple[int, ...] = ()  # as in `SampledTokens`
    state: str = ""  # of the environment when the turn began, see `protocols.EnvStep`
    images: tuple[str, ...] = ()  # the hashes of the images that the model sees in ``context_ids``
    observed: tuple[Message, ...] = ()
    """What the model reads before the turn and after the row's last one; empty: the sample's prompt, or the results of
    the turn before. A row that begins only because the template drops thinking goes on with the conversation."""
    tools: tuple[ToolSpec, ...] | None = None  # of a row that shows other tools than the trajectory's
    teacher_logprobs: tuple[float, ...] = ()  # of the sampled ids under a teacher at temperature 1, for distillation
    taught: tuple[TaughtToken, ...] = ()  # what the teacher thinks at each sampled id; not stored


@dataclass(frozen=True, slots=True)
class Row:
    """Turns whose ids only grow: what is trained as one sequence.

    ``ids``, ``loss_mask`` and ``logprobs`` have one entry for each token. The mask is 1 for sampled tokens. Context
    tokens have mask 0 and log-prob 0.0.
    """

    turns: tuple[Turn, ...]

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(chain.from_iterable(part for turn in self.turns for part in (turn.context_ids, turn.sampled_ids)))

    @property
    def loss_mask(self) -> tuple[int, ...]:
        parts = ((0,) * len(turn.context_ids) + (1,) * len(turn.sampled_ids) for turn in self.turns)
        return tuple(chain.from_iterable(parts))

    @property
    def logprobs(self) -> tuple[float, ...]:
        parts = (part for turn in self.turns for part in ((0.0,) * len(turn.context_ids), turn.logprobs))
        return tuple(chain.from_iterable(parts))

    @property
    def images(self) -> tuple[str, ...]:
        return tuple(chain.from_iterable(turn.images for turn in self.turns))


@dataclass(frozen=True, slots=True)
class Trajectory:
    """All turns of one attempt at one sample, in the order in which they were sampled.

    Most attempts are one row. An agent that edits its history or asks for a second conversation has several. ``ids``,
    ``loss_mask`` and ``logprobs`` are those of all rows, one row after the other.
    """

    sample: Sample
    attempt: int
    turns: tuple[Turn, ...]
    stop: StopReason
    faults: tuple[Fault, ...] = ()
    score: Score | None = None
    seconds: float = 0.0
    tools: tuple[ToolSpec, ...] = ()  # that the model was offered at first; `Turn.tools` has later ones
    info: Mapping[str, Any] = field(default_factory=dict)  # of the environment's state, for scorers
    answer: str | None = None  # that the user's own agent gave; None: the answer is in the turns

    @property
    def rows(self) -> tuple[Row, ...]:
        """The rows, in the order in which they began."""
        found: dict[int, list[Turn]] = {}
        for turn in self.turns:
            found.setdefault(turn.row, []).append(turn)
        return tuple(Row(tuple(turns)) for turns in found.values())

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(chain.from_iterable(row.ids for row in self.rows))

    @property
    def loss_mask(self) -> tuple[int, ...]:
        return tuple(chain.from_iterable(row.loss_mask for row in self.rows))

    @property
    def logprobs(self) -> tuple[float, ...]:
        return tuple(chain.from_iterable(row.logprobs for row in self.rows))

    @property
    def num_sampled(self) -> int:
        return sum(len(turn.sampled_ids) for turn in self.turns)

    @property
    def num_tool_calls(self) -> int:
        return sum(len(turn.message.tool_calls) for turn in self.turns)

    @property
    def called(self) -> bool | None:
        """Whether it made a valid call: one that could be read, of a tool that exists, with arguments that fit.

        None: no tool was offered, and it made no call.
        """
        if not self.tools and not self.num_tool_calls:
            return None
        return any(map(_calls, self.turns))

    @property
    def masked(self) -> bool:
        """Whether a fault leaves it out of the update."""
        return any(fault.masks for fault in self.faults)

    @property
    def reward(self) -> float:
        """The sum of the score, its process rewards and the environment's step rewards."""
        scored = self.score.value + sum(self.score.turn_rewards) if self.score else 0.0
        return scored + sum(turn.reward for turn in self.turns)


def _calls(turn: Turn) -> bool:
    """Whether a turn has a valid call."""
    refused = {result.call_id for result in turn.results if result.fault is FaultKind.POLICY}
    return any(call.error is None and call.id not in refused for call in turn.message.tool_calls)


@dataclass(frozen=True, slots=True)
class Group:
    """All attempts at one sample, which GRPO compares."""

    sample: Sample
    trajectories: tuple[Trajectory, ...]


@dataclass(frozen=True, slots=True)
class TrainSequence:
    """One row for the update; all tuples have one entry for each token."""

    ids: tuple[int, ...]
    loss_mask: tuple[int, ...]  # 1 for sampled tokens, else 0
    advantages: tuple[float, ...]  # 0.0 where the mask is 0
    logprobs: tuple[float, ...]  # of the policy that sampled; 0.0 where the mask is 0
    version: int = 0  # of the weights that sampled it
    images: tuple[str, ...] = ()  # as in `SamplingParams`
    taught: tuple[TaughtToken, ...] = ()  # of each sampled token; empty: no teacher names likely ids


@dataclass(frozen=True, slots=True)
class TrainBatch:
    """The sequences of one optimizer step."""

    sequences: tuple[TrainSequence, ...]
