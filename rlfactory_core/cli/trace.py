"""``rlfactory trace RUN``: shows trajectories, with the model's own tokens bright and masked ones dim."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

import click
from rich.text import Text

from rlfactory_core.cli.options import found_text
from rlfactory_core.cli.output import echo
from rlfactory_core.cli.ui.console import make_console
from rlfactory_core.errors import UsageError, nearest
from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.reporting.progress import count_text, number_label, number_text, seconds_text
from rlfactory_core.reporting.rescored import file_title
from rlfactory_core.reporting.trajectories import StoredTrajectory
from rlfactory_core.reporting.where import Where
from rlfactory_core.types import Message, Score, ToolResult, Trajectory

__all__ = ["show"]

_SHOWN_S = 0.001  # shorter scoring times are not shown
_FOLD_LINES = 12  # of a longer masked part, only the first and last lines are shown unless --full is given


@click.command()
@click.argument("run")
@click.option(
    "--step",
    help="A step's number, or for the evaluations `before`, `after`, `before-sampled`, `after-sampled` or "
    "`control-NAME`. Default: the last step.",
)
@click.option("--best", "order", flag_value="best", help="Highest rewards first.")
@click.option("--worst", "order", flag_value="worst", help="Lowest rewards first.")
@click.option("--where", "condition", metavar="CONDITION", help="Only attempts such as 'reward >= 1 and turns > 2'.")
@click.option("--masked", "condition", flag_value="masked", help="Only attempts that a fault left out of the update.")
@click.option("--limit", type=click.IntRange(min=1), default=3, show_default=True, help="How many to show.")
@click.option("--sample", help="Only attempts at the sample with this id.")
@click.option("--full", is_flag=True, help="Show long prompts and tool results whole.")
@click.option("--verify", is_flag=True, help="Instead check the masks and rows of all saved trajectories.")
@click.option(
    "--export",
    "export_to",
    type=click.Path(path_type=Path),
    help="Instead write the conversations of all steps, or of --step, to a .jsonl or .parquet file.",
)
@click.pass_context
def trace(
    ctx: click.Context,
    /,
    run: str,
    step: str | None,
    order: str | None,
    condition: str | None,
    limit: int,
    sample: str | None,
    full: bool,
    verify: bool,
    export_to: Path | None,
) -> None:
    """Show trajectories of RUN, a run's folder or its name under runs/.

    Tokens that are masked from the loss (prompts, tool results) are dim; without a terminal their lines begin with
    `|` and the model's own with `>`.
    """
    folder = RunFolder.open(run)
    if verify:
        ctx.exit(1 if _verify(folder) else 0)
    where = Where(condition or "")
    if export_to is not None:
        _export(folder, export_to, where, step)
        return
    file = _choose(folder, step)
    stored = list(folder.read_trajectories(file))
    if sample is not None:
        known = list({item.trajectory.sample.id for item in stored})
        if sample not in known:
            raise UsageError(f"no attempt at sample '{sample}' in {file_title(file)}. {nearest(sample, known[:20])}")
        stored = [item for item in stored if item.trajectory.sample.id == sample]
    stored = [item for item in stored if where.holds(item.trajectory)]
    if order is not None:
        stored.sort(key=lambda item: item.trajectory.reward, reverse=order == "best")
    show(stored[:limit], sys.stdout, where=f"{folder.name}, {file_title(file)}", total=len(stored), full=full)


def _export(folder: RunFolder, path: Path, where: Where, step: str | None) -> None:
    """Write the conversations of the attempts for which a condition is true, and say what is left out."""
    from rlfactory_core.tasks.trace_export import check_target, export_traces

    check_target(path)
    files = folder.attempt_files() if step is None else [_choose(folder, step)]
    if not files:
        files = [_choose(folder, None)]  # raises
    done = export_traces(where.among(_trajectories(folder, files), "attempts"), path)
    echo(f"{count_text(len(done.rows), 'conversation')} of {count_text(done.attempts, 'attempt')} in {path}")
    if done.left_out:
        echo(f"{count_text(len(done.left_out), 'attempt')} left out. The first: {done.left_out[0]}")


def _trajectories(folder: RunFolder, files: Sequence[int | str]) -> list[Trajectory]:
    return [item.trajectory for file in files for item in folder.read_trajectories(file)]


def _verify(folder: RunFolder) -> int:
    """Check every row of a run; returns the number of problems."""
    from rlfactory_core.reporting.token_problems import mask_problem, row_problem

    trajectories = rows = tokens = problems = 0
    for file in folder.trajectory_names():
        for item in folder.read_trajectories(file):
            each = item.trajectory
            trajectories, rows, tokens = trajectories + 1, rows + len(each.rows), tokens + each.num_sampled
            if problem := mask_problem(each) or row_problem(each):
                problems += 1
                echo(f"{file_title(file)}, {each.sample.id}, attempt {each.attempt}: {problem}")
    echo(f"{trajectories:,} trajectories, {rows:,} rows, {tokens:,} sampled tokens. {found_text(problems)}")
    return problems


def show(stored: Sequence[StoredTrajectory], stream: TextIO, *, where: str, total: int, full: bool = False) -> None:
    """Write trajectories to a stream, with styles if it is a terminal."""
    terminal = stream.isatty()
    console = make_console(stream, soft_wrap=True, no_color=None if terminal else True)
    for item in stored:
        for line in trajectory_lines(item, marks=not terminal, full=full):
            console.print(line, soft_wrap=True)
        console.print()
    more = f"; --limit {total} shows all" if total > len(stored) else ""
    console.print(f"{len(stored)} of {total} trajectories of {where}{more}.", style="dim", markup=False)


def trajectory_lines(stored: StoredTrajectory, *, marks: bool, full: bool) -> Iterator[Text]:
    """A trajectory as styled lines; ``marks`` puts ``|`` and ``>`` before masked and own text."""
    trajectory = stored.trajectory
    sample, answer = trajectory.sample, trajectory.sample.answer
    yield Text.assemble(
        ("── ", "cyan"),
        (sample.id, "bold cyan"),
        (f"  {number_label(sample.slice)}" if sample.slice else "", "cyan"),
        (f"  attempt {trajectory.attempt}", "dim"),
        (f"  reward {number_text(trajectory.reward)}", "bold"),
    )
    if answer is not None:
        accepted = answer if isinstance(answer, (list, tuple)) else [answer]
        yield Text.assemble(("answer  ", "dim"), " | ".join(map(str, accepted)))
    heard, rows = trajectory.sample.messages, trajectory.rows
    for turn, text in zip(trajectory.turns, stored.texts, strict=True):
        own = text.sampled or _message_text(turn.message)
        context = text.context or "\n".join(f"[{message.role}] {message.content}" for message in heard)
        heard = tuple(Message("tool", result.content) for result in turn.results)
        if len(rows) > 1:
            why = f", {number_label(turn.fork)}" if turn.fork else ""
            yield Text(f"row {turn.row}{why}", style="cyan")
        for line in _fold(context, full):
            yield Text(("| " if marks else "") + line, style="dim")
        for image in turn.images:
            yield Text(f"  sees     image {image}, trajectories/images/{image}.png", style="cyan")
        for line in own.rstrip("\n").split("\n"):
            yield Text(("> " if marks else "") + line, style="bold" if not marks else "")
        for call in turn.message.tool_calls:
            if call.error:
                yield Text(f"  ! {call.name or 'call'}: {call.error}", style="yellow")
        for result in turn.results:
            yield _result(result)
        if turn.reward:
            yield Text(f"  step reward {number_text(turn.reward)}", style="magenta")
    yield from _foot(trajectory)


def _foot(trajectory: Trajectory) -> Iterator[Text]:
    if trajectory.answer is not None:
        yield Text.assemble(("answered  ", "dim"), trajectory.answer)
    for name, count in trajectory.info.get("overridden", {}).items():
        yield Text(f"not taken from the agent's requests: {name} ({count} times)", style="dim")
    if trajectory.score is not None:
        parts = [f"{number_label(name)} {number_text(value)}" for name, value in trajectory.score.components.items()]
        if trajectory.score.turn_rewards:
            parts.append("by turn " + " ".join(map(number_text, trajectory.score.turn_rewards)))
        yield Text("rewards  " + ", ".join(parts), style="magenta")
        for name, verdict in trajectory.score.verdicts.items():
            if verdict.reasons:
                yield Text(f"  {name}: {'; '.join(verdict.reasons)}", style="dim")
        yield from _scoring(trajectory.score)
    for fault in trajectory.faults:
        where = f"turn {fault.turn + 1}" if fault.turn >= 0 else "scoring"
        yield Text(f"fault    {fault.kind.value}, {fault.source}, {where}: {fault.message}", style="red")
    if trajectory.masked:
        yield Text("masked   left out of the update", style="red")
    parts = [number_label(trajectory.stop.value), count_text(len(trajectory.turns), "turn")]
    parts.append(count_text(trajectory.num_tool_calls, "tool call"))
    if trajectory.num_sampled:  # a remote endpoint gives no ids
        parts.append(f"{trajectory.num_sampled} sampled of {len(trajectory.ids)} tokens")
    if len(trajectory.rows) > 1:
        parts.append(count_text(len(trajectory.rows), "row"))
    yield Text(f"stop     {', '.join([*parts, seconds_text(trajectory.seconds)])}", style="dim")


def _scoring(score: Score) -> Iterator[Text]:
    """The time of scoring, in all and by scorer; scorers overlap, so their sum may be larger."""
    slow = {name: seconds for name, seconds in score.latency_s.items() if seconds >= _SHOWN_S}
    if slow and score.seconds:
        by_name = ", ".join(f"{name} {1000 * seconds:.0f} ms" for name, seconds in slow.items())
        yield Text(f"scoring  {1000 * score.seconds:.0f} ms: {by_name}", style="dim")
    if score.counts:
        counts = ", ".join(f"{name} {value:g}" for name, value in score.counts.items())
        yield Text(f"counts   {counts}", style="dim")


def _result(result: ToolResult) -> Text:
    notes = [f"{result.latency_s * 1000:.0f} ms", f"{result.size_bytes} bytes"]
    notes += [count_text(result.attempts, "attempt")] if result.attempts > 1 else []
    notes += ["cached"] if result.cached else []
    notes += ["cut"] if result.truncated else []
    line = Text(f"  ← {result.name}  {', '.join(notes)}", style="green" if result.fault is None else "yellow")
    return line if result.fault is None else line.append(f", {result.fault.value} fault", style="red")


def _fold(text: str, full: bool) -> list[str]:
    lines = text.rstrip("\n").split("\n") if text else []
    if full or len(lines) <= _FOLD_LINES:
        return lines
    head, tail = _FOLD_LINES // 3, _FOLD_LINES // 2
    return [*lines[:head], f"… {len(lines) - head - tail} more lines (--full) …", *lines[-tail:]]


def _message_text(message: Message) -> str:
    """A message's text, for samplers without token ids (a remote endpoint)."""
    parts = [message.reasoning, message.content]
    parts += [f"{call.name}({call.arguments_text})" for call in message.tool_calls]
    return "\n".join(part for part in parts if part)


def _choose(folder: RunFolder, step: str | None) -> int | str:
    names, steps = folder.trajectory_names(), folder.trajectory_steps()
    files = {str(name).removeprefix("eval-"): name for name in names}
    if not files and step is None:
        raise UsageError(f"{folder.path} holds no trajectories yet: none were saved before the run stopped.")
    if step is None:
        greedy = [name for name in ("eval-before", "eval-after") if name in names]
        return [*names, *greedy, *steps][-1]
    if step not in files:
        raise UsageError(f"no trajectories of step '{step}' in {folder.path}. Saved: {', '.join(files) or 'none'}.")
    return files[step]
