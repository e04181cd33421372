"""``rlfactory samples``: shows data, a sample as the model gets it, and the score of an answer, without a model."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlfactory_core.cli.options import JSON, REST, SETTINGS, described_run, needs_local, whole_run_options
from rlfactory_core.cli.output import echo, echo_json
from rlfactory_core.errors import UsageError

if TYPE_CHECKING:
    from rlfactory_core.runner import TaskBench
    from rlfactory_core.types import Sample, Trajectory

DEADLINE_S = 600.0  # of an episode; tools and scorers have shorter ones of their own
_TEXT, _ITEMS = 2_000, 50  # characters of a text and items of a list that are shown of a row
_WIDTH = 24  # of the names of rewards


@click.group()
def samples() -> None:
    """See data, a sample as the model gets it, and the score of an answer to it."""


@samples.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("-n", "count", type=click.IntRange(min=1), default=5, show_default=True, help="How many.")
@JSON
def rows(file: Path, count: int, as_json: bool) -> None:
    """Show the first rows of FILE (JSONL or parquet), and the names of its columns; long texts are cut."""
    from rlfactory_core.tasks.data import first_rows

    found, columns = first_rows(file, count)
    shown = [_cut(row) for row in found]
    if as_json:
        echo_json({"columns": columns, "rows": shown})
    else:
        echo(f"columns: {', '.join(columns) or 'none'}")
        for row in shown:
            echo(json.dumps(row, ensure_ascii=False, indent=1))


def _cut(value: Any) -> Any:
    """The value as JSON has it, with its long texts cut."""
    if isinstance(value, Mapping):
        return {str(key): _cut(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_cut(each) for each in value[:_ITEMS]]
    if value is None or isinstance(value, (bool, int, float)):
        return value
    text = str(value)
    return text if len(text) <= _TEXT else f"{text[:_TEXT]} …"


def _sample_options(command: Callable[..., Any]) -> Callable[..., Any]:
    which = click.option("--sample", "which", default="1", show_default=True, metavar="N|ID", help="Number or id.")
    split = click.option("--split", type=click.Choice(["train", "eval"]), default="train", show_default=True)
    return which(split(whole_run_options(JSON(REST(command)))))


@samples.command(context_settings=SETTINGS)
@_sample_options
def prompt(which: str, split: str, as_json: bool, rest: tuple[str, ...], **options: Any) -> None:
    """Show the prompt that the model gets for a sample, as text with its special tokens, and count the tokens.

    It takes the words of `rlfactory run`.
    """
    from rlfactory_core.chat import unwritten
    from rlfactory_core.runner import make_chat

    with _bench(options, rest) as bench:
        if bench.runtime.agents is not None:
            raise UsageError("An agent of your own writes its prompts itself: see them with `rlfactory agents try`.")
        with needs_local():
            from rlfactory_core.engines import tokenizer_of
        sample = _sample(bench, which, split)
        tokenizer = tokenizer_of(bench.config, bench.setup, bench.registry.fingerprints())
        chat = make_chat(bench.config.chat, bench.registry)(tokenizer)
        start = bench.run(bench.opening(sample), DEADLINE_S, "the start of the episode")
    ids, limit = chat.initial_ids(start.messages, start.tools), bench.config.rollout.max_tokens
    left_out = [part.text for part in unwritten(chat, start.messages, start.tools)]
    if as_json:
        tools = [tool.name for tool in start.tools]
        counts = {"tokens": len(ids), "limit": limit, "tools": tools, "left_out": left_out}
        echo_json({"sample": sample.id, "format": chat.name, **counts, "text": chat.decode(ids)})
        return
    echo(chat.decode(ids))
    echo(f"{len(ids)} tokens, {chat.name} format, sample '{sample.id}'", err=True)
    for part in left_out:
        echo(f"warning: the model's chat template leaves out {part}", err=True)
    if len(ids) >= limit:
        echo(f"warning: rollout.max_tokens={limit} leaves no room for a turn", err=True)


@samples.command(context_settings=SETTINGS)
@click.option(
    "--answer",
    "answers",
    multiple=True,
    metavar="TEXT",
    help="What the model says; may be repeated, one for each turn. Default: what the task's solve() does.",
)
@_sample_options
def score(
    answers: tuple[str, ...], which: str, split: str, as_json: bool, rest: tuple[str, ...], **options: Any
) -> None:
    """Play an answer to a sample in the task, and show what each reward gives for it and why; no model is needed.

    It takes the words of `rlfactory run`. TEXT is a whole turn as a model writes it, with <answer> and </answer> where
    the task expects them.
    """
    from rlfactory_core.runner import oracle, script

    with _bench(options, rest) as bench:
        policy = script(*answers) if answers else oracle(bench.task)
        (played,) = bench.play(policy, [_sample(bench, which, split)], deadline_s=DEADLINE_S)
        record = _scored(bench, played)
    if as_json:
        echo_json(record)
    else:
        echo("\n".join(_lines(record)))


def _scored(bench: TaskBench, played: Trajectory) -> dict[str, Any]:
    from rlfactory_core.tiny import calls_text
    from rlfactory_devkit.rewards import components

    messages, parts = [turn.message for turn in played.turns], dict(components(played))
    weights = {name: weight for name, (_, weight) in bench.runtime.scorers.items()}
    return {
        "sample": played.sample.id,
        "said": ["\n".join(filter(None, (each.content, calls_text(each)))) for each in messages],
        "stop": played.stop.value,
        "reward": played.reward,
        "environment": sum(turn.reward for turn in played.turns),
        "rewards": [
            {"name": name, "weight": weight, "score": parts.pop(name, None)} for name, weight in weights.items()
        ],
        "parts": parts,  # of rewards that have some, as NAME.PART
        "verdicts": {
            name: {"passed": each.passed, "reasons": list(each.reasons)}
            for name, each in (played.score.verdicts if played.score else {}).items()
        },
        "faults": [f"{fault.kind.value} fault of {fault.source}: {fault.message}" for fault in played.faults],
    }


def _lines(record: dict[str, Any]) -> Iterator[str]:
    yield f"sample '{record['sample']}', ended by {record['stop']}"
    for turn, text in enumerate(record["said"], 1):
        yield f"turn {turn}   {text}"
    yield ""
    for item in record["rewards"]:
        score = "none" if item["score"] is None else f"{item['score']:.3g}"
        yield f"{item['name']:<{_WIDTH}} {score:>8}   weight {item['weight']:g}"
    yield from (f"  {name:<{_WIDTH - 2}} {value:>8.3g}" for name, value in record["parts"].items())
    if record["environment"]:
        yield f"{'the environment':<{_WIDTH}} {record['environment']:>8.3g}"
    yield f"{'reward':<{_WIDTH}} {record['reward']:>8.3g}"
    for name, verdict in record["verdicts"].items():
        yield from (f"{name}: {reason}" for reason in verdict["reasons"])
    yield from record["faults"]


@contextmanager
def _bench(options: dict[str, Any], rest: tuple[str, ...]) -> Iterator[TaskBench]:
    """The task of a run with these words, open; what it prints and its progress go to standard error."""
    from rlfactory_core.cli.ui.progress import make_progress
    from rlfactory_core.runner import TaskBench

    with make_progress(sys.stderr) as progress, redirect_stdout(sys.stderr):
        config, data = described_run(options, rest)
        if config.tasks:
            raise UsageError(
                f"These are the samples of one task: give --plugin once ({', '.join(config.task_plugins)})."
            )
        with TaskBench(config.plugin, [data], progress=progress) as bench:
            yield bench


def _sample(bench: TaskBench, which: str, split: str) -> Sample:
    """The sample of this id, or of this number, counted from 1."""
    rows = bench.rows(split)
    by_id = {row.id: row for row in rows}
    if which in by_id:
        return by_id[which]
    if which.isdecimal() and 1 <= int(which) <= len(rows):
        return rows[int(which) - 1]
    first = f" such as {rows[0].id}" if rows else ""
    raise UsageError(
        f"There is no sample '{which}' in {split}: expected a number from 1 to {len(rows)}, or an id{first}."
    )
