"""The sections of the update, the evaluations during a training, and the checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from rlfactory_core.settings import Fraction, Natural, Positive, Section


class LoraConfig(Section):
    rank: Positive = 16
    """Rank of the matrices that are trained in the place of a weight."""
    alpha: Positive = 32
    """Their product is scaled by ``alpha / rank``."""
    dropout: Fraction = 0.0
    """Share of an adapter's inputs that are set to 0 in training."""
    targets: str = "all-linear"
    """The layers that get an adapter: all-linear, or the last parts of their names, joined by commas."""
    base_bits: Literal[4] | None = None
    """Of each weight of the frozen linear layers. 4: nf4 (QLoRA), which needs bitsandbytes, an eighth of float32's
    memory, and more time. null: as ``dtype`` says."""
    adapter: str = ""
    """A folder of PEFT's adapter, on which the training goes on; --model FOLDER sets it with the keys above."""


def _goals(value: Any, at: str = "") -> Any:
    """Join nested keys, which a metric with dots becomes on the command line. None means no goals."""
    if not isinstance(value, Mapping):
        return value or {}
    goals: dict[str, Any] = {}
    for name, goal in value.items():
        key = f"{at}{name}"
        goals |= _goals(goal, f"{key}.") if isinstance(goal, Mapping) else {} if goal is None else {key: goal}
    return goals


Goals = Annotated[dict[str, Annotated[float, Field(allow_inf_nan=False)]], BeforeValidator(_goals)]


def teachers_of(teacher: str | Mapping[str, str]) -> Mapping[str, str]:
    """The teachers that ``train.teacher`` names, by task; "" stands for all other tasks."""
    return teacher if isinstance(teacher, Mapping) else {"": teacher} if teacher else {}


class TrainConfig(Section):
    """The update. The defaults suit a full fine-tune of a pretrained model; tasks with a tiny model bring their own."""

    method: Literal["grpo", "sft", "rft", "opd"] = "grpo"
    """What the policy learns from. grpo: its own attempts, compared with each other. sft: demonstrations, see
    ``source``. rft: its own best attempts, see ``where`` and ``winners``. opd: how likely a ``teacher`` finds each
    token that the policy samples. Each method has defaults of its own."""
    source: str = "solve"
    """With method=sft: where the demonstrations come from. solve: the task's ``solve`` or ``demonstrate``, played in
    its environment with its tools. Or a file of traces (.jsonl, .json, .parquet), or the folder of a run or of an
    evaluation."""
    where: str = ""
    """With sft and rft: which attempts are learnt from, such as reward >= 1 and tool_calls >= 1. Empty, for solve
    and the attempts of a run: reward > 0; for a file: all; for rft: those that succeed."""
    winners: Positive = 4
    """With method=rft: of one group, at most so many attempts are learnt from."""
    steps: Natural = 100
    """At most; see ``until`` and ``patience``."""
    until: Goals = {}
    """Held-out metric -> value, such as exact_match: 0.95, sampled/pass@4: 0.5 or called: 0.9, the share of attempts
    with a valid call. The training, or the stage, ends after the first evaluation that reaches all of them."""
    patience: Natural = 0
    """The training ends after so many evaluations in a row without a better held-out result; 0: it goes on."""
    prompts_per_step: Positive = 16
    """Samples of a step, each played ``group_size`` times."""
    group_size: Positive = 8
    """Attempts at one sample, which are compared with each other."""
    prompts: str = "uniform"
    """How the samples of a step are chosen. uniform: each once an epoch. difficulty: by what can still be learnt from
    them. Or a name that a plugin registers."""
    refill: bool = False
    """Whether a group whose attempts all got the same reward, which teaches nothing, is replaced within the step."""
    refill_factor: Annotated[int, Field(ge=2)] = 2
    """With ``refill``, the most groups that are played for one that is wanted."""
    advantage: str = "grpo"
    """Of whole attempts: grpo, dr_grpo or rloo. By turn: turn_grpo, turn_rloo or gigpo. Or a name that a plugin
    registers, or gae (PPO with a critic); an engine may have more. sft and rft have imitation."""
    gamma: Fraction = 1.0
    """For gigpo, turn_grpo and turn_rloo: discount of a later turn's reward. For gae: of a later token's."""
    lam: Fraction = 1.0
    """For advantage=gae: between one-step (0) and whole returns (1)."""
    critic_lr: Annotated[float, Field(gt=0.0)] = 1e-5
    """For advantage=gae: learning rate of the critic (AdamW)."""
    turn_weight: Annotated[float, Field(ge=0.0)] = 1.0
    """For advantage=gigpo: weight of the comparison of turns, beside that of whole attempts."""
    loss: str = "ppo"
    """The policy loss: ppo, gspo, cispo or sapo, or a name that a plugin registers; an engine may have more. dapo and
    dr_grpo are ppo with keys of their own; another value of one of these is refused. sft and rft have nll."""
    aggregation: Literal["token", "trajectory", "constant"] = "token"
    """What weighs the same in the loss: each sampled token, or each trajectory, whatever its length."""
    teacher: str | dict[str, str] = ""
    """With method=opd: the model that the policy imitates. A folder, a hub id, or the address of a server that has
    log-probs of prompts, such as http://HOST:8000/v1 (vLLM). In a run of several tasks also one for each task."""
    teacher_device: str = ""
    """Of a teacher that is a folder or a hub id: cpu, cuda or cuda:N. Empty: the device of the policy."""
    teacher_top: Natural = 20
    """With method=opd: compare policy and teacher in so many of its likeliest tokens at each place, and in all others
    together. 0: in the sampled token alone, which has more noise. A server may have a limit (vLLM: --max-logprobs)."""
    teacher_discount: Fraction = 0.0
    """With method=opd: discount of later tokens' credit; 0: each token has only its own."""
    reward_weight: Annotated[float, Field(ge=0.0)] = 0.0
    """With method=opd: weight of ``advantage``, which is added to the teacher's credit; 0: rewards do not count."""
    lr: Annotated[float, Field(gt=0.0)] = 1e-6
    """Learning rate of AdamW."""
    optimizer_bits: Literal[8, 32] = 32
    """Of each of AdamW's two moments of a weight. 8 needs a quarter of their memory, more time, and bitsandbytes."""
    muon_lr: Annotated[float, Field(ge=0.0)] = 0.0
    """Learning rate of Muon for the hidden matrices; 0: AdamW for everything."""
    weight_decay: Annotated[float, Field(ge=0.0)] = 0.0
    """Of AdamW and Muon."""
    warmup_steps: Natural = 0
    """Optimizer updates, of which a step has ``updates_per_step``, in which the learning rate rises to its value."""
    schedule: Literal["constant", "cosine", "linear"] = "constant"
    """The learning rate after the warm-up. cosine and linear: it falls to 0 by the last of ``steps``."""
    updates_per_step: Positive = 1
    """Optimizer steps that share one step's trajectories; with sft and rft each takes all of them."""
    clip_low: Fraction = 0.2
    """The probability ratio is clipped below ``1 - clip_low``."""
    clip_high: Annotated[float, Field(ge=0.0)] = 0.28
    """The probability ratio is clipped above ``1 + clip_high``."""
    kl: Annotated[float, Field(ge=0.0)] = 0.0
    """Weight of the KL divergence from the policy at the start of the training, or of the stage that sets it."""
    max_grad_norm: Annotated[float, Field(gt=0.0)] = 1.0
    """A larger gradient is scaled down to this norm."""
    microbatch_tokens: Positive = 16384
    """Most tokens of one forward and backward pass; what sequences share counts once, and fewer need less memory. If it
    is not set, the run takes fewer where so many do not fit into the memory that is free."""
    staleness: Natural = 0
    """How many updates the sampling weights may lag behind; 0: on-policy."""
    truncate_weight: Annotated[float, Field(gt=0.0)] | None = None
    """With staleness > 0. null: the loss compares each token with the policy that sampled it. A number: with the policy
    at the start of the update (decoupled objective), whose importance weights are at most this."""
    guard: Literal["warn", "stop", "rollback"] = "warn"
    """What happens when entropy, length or the use of tools collapse, sampling and training differ, all is masked, or a
    rewarded score rises while one of weight 0 falls. stop: the run stops after the step, which is saved. rollback: it
    goes back to the last checkpoint before that, once, and on with half the learning rate; the next time it stops."""
    max_skipped: Positive = 5
    """Steps in a row without an update (NaN, exploding gradient, too many masked) after which the run stops."""
    explode_norm: Annotated[float, Field(gt=0.0)] = 1e4
    """A step with a larger gradient norm is skipped."""
    workers: Natural = 0
    """Data-parallel CPU processes; 0: chosen from the model's size, the cores and the memory."""
    gradient_checkpointing: bool = False
    """Compute activations again in the backward pass: less memory, about a third more time. If it is not set, the run
    does so where it would not fit otherwise."""
    lora: LoraConfig | None = None
    """Train an adapter instead of all weights; null: all weights."""

    @property
    def likely(self) -> int:
        """The teacher's likely tokens that are compared at each place; 0 without a teacher."""
        return self.teacher_top if self.method == "opd" else 0


class EvalConfig(Section):
    every: Natural = 10
    """Steps between two evaluations; 0: only before and after the training."""
    limit: Natural = 200
    """Samples of an evaluation; 0: all."""
    sampled: bool = True
    """Whether the evaluations before and after are also made at temperature 1."""
    attempts: Positive = 1
    """Attempts a sample at temperature 1; pass@k needs at least k."""


class CheckpointConfig(Section):
    every: Natural = 20
    """Steps between two checkpoints; 0: only at the end."""
    keep: Positive = 2
    """Checkpoints that are kept; older ones are deleted."""
