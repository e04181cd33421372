"""Whether two commits train to the same bits: the same sampled tokens, rewards and weights from the same seeds.

    python benchmarks/equal_results.py                     # writes benchmarks/results/equal_results.md
    python benchmarks/equal_results.py --after main --cases search lora

Each case is a short ``rlfactory run`` with the code, the plugins and the tasks of either commit, in one environment
(`equal_trees`). Both start from the same models, which the earlier commit warm-starts. Some cases are also resumed: the
run of the earlier commit, by both. With `--runs` the models and runs of the earlier commit are kept.

Compared are, for each attempt in training and in evaluations, its token ids, log-probabilities, reward, scores and end;
the weights of each checkpoint; and the metrics that both commits report, but for seconds and the machine's. Metrics
decide nothing, since one may be renamed. With `train.staleness` the run is made by `in_one_thread`. Log-probabilities
and weights may differ by rounding there: other turns are decoded together where the code waits more or less often.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from equal_trees import ROOT, Tree
from machine import describe, finish, publish, sized
from safetensors import safe_open
from scoring_server import scoring_server

BEFORE = "442714da"  # before the training loop had a room of its own
PAGE = ROOT / "benchmarks" / "results" / "equal_results.md"
TINY, JUDGED, QUIZ = "tests/support/tiny_task.py", "tests/support/judged_task.py", "benchmarks/quiz_task.py"
RATES = ("train.lr=1e-3", "train.muon_lr=3e-3")
SHORT = ("rollout.max_turns=3", "rollout.max_turn_tokens=40", "rollout.max_tokens=320", "train.group_size=4", *RATES)
LONG = ("rollout.max_turn_tokens=96", "rollout.max_tokens=1024", *RATES, "train.schedule=linear")
ALL = ("train.workers=1", "train.prompts_per_step=4", "eval.every=2", "eval.limit=6", "checkpoint.every=1")
KEPT = ("checkpoint.keep=20", "rollout.deterministic=true", "device=cpu")
QUIZZED = ("rollout.max_turns=12", "rollout.max_turn_tokens=10", "rollout.max_tokens=500", "train.group_size=4")
QUIZZED += ("train.advantage=gigpo", *RATES)
COMPARED = ("tokens", "log-probs", "rewards", "weights")
EXACT = ("tokens", "rewards")  # also where rollouts overlap: the rest depends on which turns are decoded together
JUDGE_URL = "JUDGE_URL"  # in a case's keys: the address of `scoring_server`


@dataclass(frozen=True)
class Case:
    """A run that both commits make."""

    what: str
    plugin: str  # a name, or a file of the commit's tree
    keys: tuple[str, ...] = ()
    model: str = ""  # the plugin whose warm-started model it trains; none: the case's own
    steps: int = 2
    resumed: bool = False  # whether it is also resumed, for two steps more
    tasks: str = ""  # several tasks, in the place of the plugin, as YAML
    warm: bool = False  # the case makes its own model

    @property
    def overlaps(self) -> bool:
        """Whether rollouts overlap with updates, so that the run repeats itself in one thread only."""
        return any(key.startswith("train.staleness=") for key in self.keys)


def tiny(what: str, *keys: str, plugin: str = TINY, **more: Any) -> Case:
    return Case(what, plugin, (*SHORT, *keys), model=TINY, **more)


REWARDS = json.dumps([{"name": "judge", "url": JUDGE_URL, "cache": "off"}, {"name": "exact_match", "weight": 0.5}])
RANKED = json.dumps([{"name": "judge", "mode": "ranking", "url": JUDGE_URL, "cache": "off"}])
CASES = {
    "warm start": Case("a tiny task from its warm start", TINY, warm=True),
    "search": Case(
        "two processes, four updates a step",
        "search",
        ("rollout.max_turns=4", "rollout.max_tool_calls=3", *LONG, "train.workers=2", "train.updates_per_step=4"),
        model="search",
        resumed=True,
    ),
    "nl2sql": Case("SQL tools and verdicts", "nl2sql", ("rollout.max_turns=8", *LONG), model="nl2sql"),
    "judged": tiny("a judge at an address, beside a rule", f"rewards={REWARDS}", plugin=JUDGED),
    "ranked": tiny("a judge that ranks groups", f"rewards={RANKED}", plugin=JUDGED),
    "turn rewards": tiny(
        "`turn_grpo`, a reward by turn",
        *("train.advantage=turn_grpo", "train.gamma=0.9", "task.turn_reward=0.2"),
        'rewards={"exact_match": 1.0, "env_reward": 0.0}',
    ),
    "turn credit": Case(
        "`gigpo`, twelve turns",
        QUIZ,
        QUIZZED,
        model=QUIZ,
    ),
    "staleness": tiny("staleness 2", "train.staleness=2", "rollout.deterministic=false", steps=5, resumed=True),
    "decoupled": tiny(
        "staleness 1, decoupled objective, refill",
        *("train.staleness=1", "train.truncate_weight=2.0", "train.refill=true", "rollout.deterministic=false"),
        steps=4,
    ),
    "refill": tiny("refill, prompts by difficulty", "train.refill=true", "train.prompts=difficulty", resumed=True),
    "critic": tiny(
        "`gae` with a critic",
        *("train.advantage=gae", "train.gamma=0.99", "train.lam=0.9", "train.critic_lr=1e-3"),
        resumed=True,
    ),
    "lora": tiny("LoRA", "train.lora={rank: 8, alpha: 16}", "train.muon_lr=0", resumed=True),
    "two tasks": tiny(
        "two tasks by weight",
        "train.prompts_per_step=3",
        resumed=True,
        tasks="""\
tasks:
  colours: {plugin: TINY, weight: 2}
  looks: {plugin: TINY, task: {samples: 20}, rewards: {looked: 1.0}, rollout: {max_turns: 1}}
""",
    ),
    "cispo": tiny("`cispo`, KL, two updates", "train.loss=cispo", "train.kl=0.05", "train.updates_per_step=2"),
    "gspo": tiny(
        "`gspo` and `rloo`, by trajectory",
        *("train.loss=gspo", "train.advantage=rloo", "train.aggregation=trajectory", "train.updates_per_step=2"),
    ),
    "sapo": tiny("`sapo`", "train.loss=sapo", "train.updates_per_step=2"),
    "dr_grpo": tiny("`dr_grpo`", "train.advantage=dr_grpo", "train.aggregation=constant"),
    "faults": tiny(
        "a tool that fails, masking",
        *("task.lost=0.3", "rollout.retries=0", "tools.retries=0", "train.workers=2"),
        steps=3,
    ),
    "until": tiny("a goal that is reached", "train.until={exact_match: 0.5}", "eval.every=1", steps=6),
}


class RunFailedError(Exception):
    """A run ended with an error."""


@dataclass(frozen=True)
class Found:
    """How two runs of a case compare: by what is compared, the first difference, or nothing."""

    case: str
    steps: int
    attempts: int
    tokens: int
    differences: Mapping[str, str]
    resumed: str | None  # the first difference after resuming; None: it was not
    metrics: Sequence[str] = field(default_factory=tuple)  # that differ

    @property
    def held(self) -> bool:
        decisive = EXACT if CASES[self.case].overlaps else COMPARED
        return not any(self.differences[what] for what in decisive) and not self.resumed


def attempts(run: Path) -> dict[str, list[dict[str, Any]]]:
    """By file, each attempt's tokens and results, in the order of the samples."""
    found = {}
    for path in sorted((run / "trajectories").glob("*.jsonl")):
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        seen = [
            {
                "at": f"{row['sample'].get('task', '')} {row['sample']['id']} {row['attempt']}",
                "tokens": [(turn["context_ids"], turn["sampled_ids"]) for turn in row["turns"]],
                "log-probs": [value for turn in row["turns"] for value in turn["logprobs"]],
                "rewards": [
                    row["reward"],
                    *(row["score"] and row["score"][key] for key in ("value", "components", "turns")),
                    [turn["reward"] for turn in row["turns"]],
                    [row["stop"], row["masked"], [turn["version"] for turn in row["turns"]]],
                ],
            }
            for row in rows
        ]
        found[path.stem] = sorted(seen, key=lambda row: (row["at"], row["tokens"]))
    return found


def first_difference(before: Path, after: Path, what: str) -> str:
    """The first attempt whose tokens or rewards differ; empty if all are equal."""
    one, other = attempts(before), attempts(after)
    if one.keys() != other.keys():
        return f"files: {sorted(one.keys() ^ other.keys())}"
    for name, rows in one.items():
        if [row["at"] for row in rows] != [row["at"] for row in other[name]]:
            return f"{name}: other samples"
        for left, right in zip(rows, other[name], strict=True):
            if left[what] != right[what]:
                apart = _apart(left[what], right[what]) if what == "log-probs" else ""
                return f"{name}: {left['at'].strip()}{apart}"
    return ""


def _apart(one: Sequence[float], other: Sequence[float]) -> str:
    """How far two lists of numbers are apart at most."""
    if len(one) != len(other):
        return ""
    return f", by {max(abs(left - right) for left, right in zip(one, other, strict=True)):.0e}"


def weights_differ(before: Path, after: Path) -> str:
    """The first checkpoint and tensor that differ; empty if all are equal."""
    folders = [sorted((run / "checkpoints").glob("step-*")) for run in (before, after)]
    if [path.name for path in folders[0]] != [path.name for path in folders[1]]:
        return "other checkpoints"
    for one, other in zip(*folders, strict=True):
        files = [sorted(path.rglob("*.safetensors")) for path in (one, other)]
        if not files[0] or [path.name for path in files[0]] != [path.name for path in files[1]]:
            return f"{one.name}: other files"
        for left, right in zip(*files, strict=True):
            if name := tensor_differs(left, right):
                return f"{one.name}: {name}"
    return ""


def tensor_differs(left: Path, right: Path) -> str:
    """The first tensor that differs; empty if none does."""
    with safe_open(left, "np") as one, safe_open(right, "np") as other:
        if set(one.keys()) != set(other.keys()):
            return "other tensors"
        for name in sorted(one.keys()):
            left_values, right_values = one.get_tensor(name), other.get_tensor(name)
            if left_values.tobytes() != right_values.tobytes():
                return f"{name}, by {abs(left_values - right_values).max():.0e}"
    return ""


def metrics_differ(before: Path, after: Path) -> Iterator[str]:
    """The names of metrics that only one run has, or whose values differ."""
    runs = [[json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()] for run in (before, after)]
    summaries = [json.loads((run / "summary.json").read_text())["eval"] for run in (before, after)]
    for when in sorted(summaries[0].keys() | summaries[1].keys()):
        runs[0].append(summaries[0].get(when, {}))
        runs[1].append(summaries[1].get(when, {}))
    names = dict.fromkeys(name for rows in runs for row in rows for name in row)
    for name in names:
        if name.endswith(("_s", "_per_second")) or name.startswith("machine/"):
            continue
        values = [[row.get(name) for row in rows] for rows in runs]
        if values[0] != values[1]:
            one_has = [any(value is not None for value in each) for each in values]
            yield name if all(one_has) else f"{name} ({'only before' if one_has[0] else 'only after'})"


def difference(before: Path, after: Path, what: str) -> str:
    """The first difference of two runs; empty if there is none."""
    return weights_differ(before, after) if what == "weights" else first_difference(before, after, what)


def compare(case: str, before: Path, after: Path, resumed: str | None) -> Found:
    found = attempts(after)
    count = [row for name, rows in found.items() for row in rows if name.startswith("step-")]
    return Found(
        case,
        sum(name.startswith("step-") for name in found),
        len(count),
        sum(len(sampled) for row in count for _, sampled in row["tokens"]),
        {what: difference(before, after, what) for what in COMPARED},
        resumed,
        tuple(metrics_differ(before, after)),
    )


@dataclass(frozen=True)
class Bench:
    """Where two commits run their cases."""

    before: Tree
    after: Tree
    folder: Path
    url: str  # of the judge

    def case(self, name: str) -> Found:
        case = CASES[name]
        one = self._run(name, case, self.before)
        try:
            other = self._run(name, case, self.after)
            return compare(name, one, other, self._resumed(one, case) if case.resumed else None)
        except RunFailedError as failed:
            sys.stderr.write(f"{failed}\n")
            return Found(name, 0, 0, 0, dict.fromkeys(COMPARED, "fails"), None)

    def _run(self, name: str, case: Case, tree: Tree) -> Path:
        out = tree.runs / name.replace(" ", "-")
        if (out / "summary.json").exists():
            return out
        shutil.rmtree(out, ignore_errors=True)
        keys = [key.replace(JUDGE_URL, self.url) for key in (*ALL, *KEPT, *case.keys)]
        task = ["--plugin", tree.plugin(case.plugin)]
        if case.tasks:
            config = tree.runs / f"{name}.yaml"
            config.write_text(case.tasks.replace("TINY", tree.plugin(TINY)), encoding="utf-8")
            task = ["--config", str(config)]
        model = ["--model", str(self._model(case.model))] if case.model else []
        cache = tree.runs / "cache" if case.warm else self.folder / "models" / "others"
        arguments = (*task, *model, "--steps", str(case.steps), "--out", str(out), *keys)
        self._command(tree, cache, *arguments, one_thread=case.overlaps)
        return out

    def _model(self, plugin: str) -> Path:
        """The warm-started model of a plugin, by the code of the earlier commit."""
        place = self.folder / "models" / Path(plugin).stem
        known = place / "model"
        if not known.exists():
            keys = ("--steps", "0", "--out", str(place / "run"), *ALL, *KEPT, "eval.sampled=false", "eval.limit=1")
            self._command(self.before, place / "cache", "--plugin", self.before.plugin(plugin), *keys)
            (made,) = (path for path in (place / "cache" / "models").iterdir() if path.is_dir())
            known.symlink_to(made)
        return known

    def _resumed(self, run: Path, case: Case) -> str:
        """Both commits go on from the earlier one's last checkpoint; the first difference."""
        ends = []
        for tree in (self.before, self.after):
            out = tree.runs / f"{run.name}-resumed"
            ends.append(out)
            if tree is self.before and (out / "done").exists():
                continue
            shutil.rmtree(out, ignore_errors=True)
            shutil.copytree(run, out, symlinks=True)
            config = out / "config.yaml"
            config.write_text(config.read_text().replace(str(self.before.code), str(tree.code)))
            arguments = ("--resume", str(out), "--steps", str(case.steps + 2))
            self._command(tree, self.folder / "models" / "others", *arguments, one_thread=case.overlaps)
            (out / "done").touch()
        found = {what: difference(*ends, what) for what in (EXACT if case.overlaps else COMPARED)}
        return "; ".join(f"{what}, {where}" for what, where in found.items() if where)

    def _command(self, tree: Tree, cache: Path, *arguments: str, one_thread: bool = False) -> None:
        """``rlfactory run`` with a tree's code."""
        program = [str(ROOT / "benchmarks" / "in_one_thread.py")] if one_thread else ["-m", "rlfactory_core"]
        cache.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, **tree.environment, "RLFACTORY_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, *program, "run", *arguments]
        done = subprocess.run(command, env=environment, cwd=tree.runs, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RunFailedError(f"{done.stdout}{done.stderr}{tree.name} fails: {' '.join(arguments)}")


def report(found: Sequence[Found], before: Tree, after: Tree, command: str) -> str:
    head = "case | what | steps | attempts | sampled tokens | tokens | log-probs | rewards | weights | resumed"
    rows = [f"| {head} | metrics that differ |", "|---" * 11 + "|"]
    for one in found:
        shown = [one.differences[what] or "equal" for what in COMPARED]
        shown.append({None: "", "": "equal"}.get(one.resumed, one.resumed or ""))
        rows.append(
            f"| {one.case} | {CASES[one.case].what} | {one.steps} | {one.attempts} | {one.tokens:,} | "
            + " | ".join(shown)
            + f" | {', '.join(one.metrics)} |"
        )
    return (
        f"# Equal results of {before.name} and {after.name}\n\n"
        "Runs from the same seeds and models. Equal: to the bit, in all attempts in training and evaluations, or all\n"
        "checkpoints. Otherwise, the first difference. Resumed: both commits go on from the earlier one's run.\n\n"
        + "\n".join(rows)
        + f"\n\nMade by `{command}` on {describe()}.\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", default=sized(BEFORE, ""), help="a commit; empty: the working tree")
    parser.add_argument("--after", default="", help="a commit; empty: the working tree")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=sized(list(CASES), ["warm start"]))
    parser.add_argument("--runs", type=Path, help="keep models and runs here, and do not repeat those of --before")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, scoring_server() as url:
        folder = (options.runs or Path(scratch)).absolute()
        shutil.rmtree(folder / "after", ignore_errors=True)
        before, after = Tree.make(options.before, folder / "before"), Tree.make(options.after, folder / "after")
        bench = Bench(before, after, folder, url)
        found = []
        for name in options.cases:
            found.append(bench.case(name))
            sys.stderr.write(f"{name}: {found[-1]}\n")
    named = "" if options.cases == list(CASES) else f" --cases {' '.join(options.cases)}"
    publish(PAGE, report(found, before, after, f"python benchmarks/equal_results.py{named}"))
    finish(held=all(one.held for one in found))


if __name__ == "__main__":
    main()
