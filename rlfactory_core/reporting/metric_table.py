"""The table of a step's metrics: what each means, and the chart that draws it.

The report, the page of `rlfactory ui` and docs/contracts/run-folder.md are made from it. To add a metric, compute it in
`metrics` (from trajectories) or in the engine's update, and add its row here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Metric:
    """One name, or a family of names, of ``metrics.jsonl``.

    Args:
        name: words in capitals stand for what a run brings, such as the name of a tool.
        meaning: with its unit; Markdown for docs/contracts/run-folder.md. Empty: the row before has it.
        chart: the title of the `Plot` that draws it; empty: none.
        label: of its line; empty: made from the name.
    """

    name: str
    meaning: str = ""
    chart: str = ""
    label: str = ""

    @property
    def pattern(self) -> re.Pattern[str]:
        """Matches the names of the family; its group is the part that labels a line."""
        return re.compile(re.sub(r"[A-Z]+", "([^/]+)", self.name))


@dataclass(frozen=True, slots=True)
class Plot:
    """A chart of the report: the metrics that name it are its lines.

    Args:
        section: the section of the page.
        note: what a value is of.
        unit: of the value axis; empty: the title.
        low: the lower end of the value axis; None: from the data.
        high: the upper end; None: from the data.
        smooth: whether a moving mean is drawn where there are many values.
        varies: leave the chart out while its values are all the same.
    """

    section: str
    title: str
    note: str = ""
    unit: str = ""
    low: float | None = 0.0
    high: float | None = None
    smooth: bool = True
    varies: bool = False


PLOTS = (
    Plot("Learning", "Reward", "mean of a step's trajectories", low=None),
    Plot("Learning", "Groups without a gradient", "all attempts scored alike", "groups"),
    Plot("Behaviour", "Tool calls", "per trajectory", "calls"),
    Plot("Behaviour", "Calls", "of a step's trajectories", "share with", high=1.0),
    Plot("Behaviour", "Calls by tool", "per step", "calls"),
    Plot("Behaviour", "Latency by tool", "95th percentile of a step's calls", "seconds"),
    Plot("Behaviour", "Turns", "per trajectory"),
    Plot("Behaviour", "Rows", "sequences per trajectory; below: why new sequences began, per step"),
    Plot("Behaviour", "Length", "sampled tokens per trajectory", "tokens"),
    Plot("Behaviour", "How trajectories end", "of the step's trajectories", "share", high=1.0),
    Plot(
        "Behaviour", "Faults", "per step; infra and verifier faults mask a trajectory out of the update", smooth=False
    ),
    Plot("Speed", "Throughput", "while sampling and while training", "tokens per second"),
    Plot("Speed", "Time", "per step", "seconds"),
    Plot("Speed", "CPU load", "that the run keeps busy", "cores"),
    Plot("Speed", "GPU load", "of the time", "share", high=1.0),
    Plot("Speed", "Memory", "of the GPU: the peak so far", "GiB"),
    Plot("Update", "Loss", low=None, varies=True),
    Plot("Update", "Likelihood", "negative, of what is imitated", "nats per token"),
    Plot("Update", "Grad norm", "before clipping", varies=True),
    Plot("Update", "Entropy", "nats per token", varies=True),
    Plot("Update", "KL", "to the start model", low=None, varies=True),
    Plot("Update", "KL to the teacher", "reverse KL, nats per sampled token", "KL", low=None),
    Plot("Update", "The 5 % most different tokens", "their part of all differences to the teacher", "share", high=1.0),
    Plot("Update", "Clip fraction", "share of tokens whose ratio is clipped", varies=True),
    Plot("Update", "Mismatch KL", "sampler against trainer, at the same weights", low=None, varies=True),
    Plot("Update", "Lr", varies=True),
    Plot("Update", "Staleness", "updates that the sampling weights lag behind", varies=True),
    Plot("Update", "Skipped", "steps whose gradient was not finite or exploded", varies=True),
)

METRICS = (
    Metric(
        "reward",
        "mean over the trajectories that are not masked; in a run of several tasks also `reward/TASK`",
        "Reward",
    ),
    Metric("reward_std", "standard deviation over these trajectories"),
    Metric("turns", "mean per trajectory", "Turns"),
    Metric("tool_calls", "mean per trajectory", "Tool calls"),
    Metric(
        "called",
        "share of the trajectories with a valid call: one that could be read, of a tool that exists, with arguments "
        "that fit; only where tools are offered. Also in the results of evaluations",
        "Calls",
        "a valid call",
    ),
    Metric("unparsed", "share of the trajectories with a call that could not be read", "Calls", "an unreadable call"),
    Metric("sampled_tokens", "mean per trajectory", "Length"),
    Metric("rows", "mean number of sequences per trajectory, of [agents](../agents.md#what-is-trained)", "Rows"),
    Metric("forks/REASON", "number of further sequences that an agent began, by reason", "Rows"),
    Metric("overridden/PARAMETER", "how often an agent asked for a value that is ignored"),
    Metric(
        "stop/REASON",
        "share of the trajectories, for [every reason](faults.md#why-a-trajectory-stops)",
        "How trajectories end",
    ),
    Metric("faults/KIND", "number of faults, for [every kind](faults.md)", "Faults"),
    Metric("faults/verifier/SCORER", "number of faults of a scorer"),
    Metric("masked", "number of trajectories left out of the update", "Faults", "masked trajectories"),
    Metric("masked/SOURCE", "of these, by the tool or scorer that failed; also as `eval/masked/SOURCE`"),
    Metric("masked_groups", "number of groups that are not trained on, because too many are [masked](faults.md)"),
    Metric("replays", "how often the step was played again, because too many were [masked](faults.md)"),
    Metric("groups", "number of groups that were played"),
    Metric(
        "equal_groups",
        "number of groups whose rewards are all equal, which have no gradient",
        "Groups without a gradient",
        "groups",
    ),
    Metric("counts/SCORER.NAME", "what a scorer counted, such as requests, summed over all trajectories"),
    Metric("tools/cache_hit_rate", "share of all calls that another call has answered"),
    Metric("tool/NAME/calls", "number of calls of a tool", "Calls by tool"),
    Metric("tool/NAME/attempts", "number of attempts, retries included"),
    Metric("tool/NAME/bytes", "size of all results"),
    Metric("tool/NAME/truncated", "number of results that were cut"),
    Metric("tool/NAME/faults_KIND", "number of calls that failed, by kind of fault"),
    Metric("tool/NAME/cache_hit_rate", "share of the tool's calls that another call has answered"),
    Metric("tool/NAME/latency_p95_s", "95th percentile; also `latency_p50_s` and `latency_max_s`", "Latency by tool"),
    Metric("loss", "of the policy", "Loss"),
    Metric("nll", "with `train.method` sft or rft: negative log-likelihood of a trained token, in nats", "Likelihood"),
    Metric("eval/nll", "with sft: the same of held-out demonstrations, in evaluations", "Likelihood", "held out"),
    Metric("learnt_from", "with sft or rft: number of attempts that are learnt from"),
    Metric("left_out", "with sft or rft: number of attempts that are not"),
    Metric("stage", "in a run of several stages: the number of the current one, from 1"),
    Metric("grad_norm", "norm of the gradient before clipping", "Grad norm"),
    Metric("clip_fraction", "share of the tokens whose ratio is clipped", "Clip fraction"),
    Metric("entropy", "mean, in nats per token", "Entropy"),
    Metric("kl", "to the start model, in nats per token", "KL"),
    Metric(
        "teacher_kl",
        "with [`train.method=opd`](../methods.md): reverse KL to the teacher, in nats per sampled token",
        "KL to the teacher",
        "all turns",
    ),
    Metric("teacher_kl/calls", "of the turns with a tool call", "KL to the teacher", "turns with a call"),
    Metric("teacher_kl/answers", "of the turns without one", "KL to the teacher", "turns without"),
    Metric(
        "teacher_kl_top",
        "the part of all differences between policy and teacher that the 5 % most different tokens have",
        "The 5 % most different tokens",
        "share",
    ),
    Metric("mismatch_kl", "of the trainer to the sampler at the same weights, in nats per token", "Mismatch KL"),
    Metric("lr", "learning rate", "Lr"),
    Metric("skipped", "number of updates whose gradient was not finite or exploded", "Skipped"),
    Metric("critic_loss", "with `train.advantage=gae`: of the critic"),
    Metric("staleness", "mean number of updates by which the weights that sampled a token lag behind", "Staleness"),
    Metric("staleness_max", "the highest of these numbers"),
    Metric(
        "importance_weight",
        "mean ratio of the policy to the one that sampled; if truncated, mean weight",
    ),
    Metric("effective_sample_size", "share of the tokens that count if each has this weight"),
    Metric("trained_tokens", "number of tokens with loss mask 1"),
    Metric("step_s", "duration of the step", "Time", "step"),
    Metric("rollout_s", "duration of the step's rollouts", "Time", "rollout"),
    Metric("update_s", "duration of the update", "Time", "update"),
    Metric("rollout_wait_s", "seconds in which the update waited for groups"),
    Metric("sampler_idle_s", "seconds in which nothing could be sampled because all trajectories waited"),
    Metric("sampled_tokens_s", "tokens per second while sampling", "Throughput", "sampled"),
    Metric("trained_tokens_s", "tokens per second while training", "Throughput", "trained"),
    Metric(
        "refilled_groups",
        "with [`train.refill`](../training.md#groups-that-teach-nothing): groups played in place of others",
    ),
    Metric("attempts", "with `train.refill`: attempts played"),
    Metric("guard/FINDING", "1 in the steps in which [the guard](../training.md#the-guard) found something"),
    Metric(
        "machine/cpu_cores",
        "cores that the training process and its children kept busy since the last line that has this. At most once a "
        "second. With verl: of the driver",
        "CPU load",
        "cores",
    ),
    Metric(
        "machine/memory_gib",
        "resident memory of these processes; what they share counts once for each. With verl: of the node",
        "Memory",
        "main memory",
    ),
    Metric("machine/gpu_memory_gib", "on CUDA: the peak of torch's memory so far", "Memory", "GPU"),
    Metric(
        "machine/gpu_use",
        "on CUDA: share of time in which the GPU computes, where nvidia-ml-py is installed",
        "GPU load",
        "use",
    ),
    Metric("verl/…", "verl's own numbers"),
)

RESERVED = frozenset({"step", *(metric.name for metric in METRICS if re.fullmatch(r"[a-z_]+", metric.name))})
"""Names that no score component can have: it is reported as ``score/<component>``."""
