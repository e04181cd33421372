"""``rlfactory plugins redteam``: counts wrong answers that a task's reward accepts, and right ones that it refuses."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlfactory_core.cli.options import CONFIG, JSON, REST, REWARD, SEED, SETTINGS, nested, task_options
from rlfactory_core.cli.output import echo_json
from rlfactory_core.utils.display import printable

if TYPE_CHECKING:
    from rlfactory_devkit.redteam.result import Attempt, RedTeamResult

RATE = click.FloatRange(0.0, 1.0)
TITLES = {"wrong": "wrong answers", "right": "right answers", "either": "for the task to say"}


@click.command(context_settings=SETTINGS)
@click.argument("plugin", metavar="NAME|FILE.py")
@click.option("--samples", type=click.IntRange(min=1), default=12, show_default=True, help="How many are attacked.")
@SEED
@click.option("--skip", multiple=True, metavar="MUTATION", help="Leave this one out; may be repeated.")
@click.option("--max-false-accepts", type=RATE, default=0.0, show_default=True, help="That still exits with 0.")
@click.option("--max-false-rejects", type=RATE, default=0.0, show_default=True, help="That still exits with 0.")
@click.option("--worst", type=click.IntRange(min=0), default=6, show_default=True, help="Examples that are shown.")
@REWARD
@CONFIG
@JSON
@REST
@click.pass_context
def redteam(
    ctx: click.Context,
    /,
    plugin: str,
    samples: int,
    skip: tuple[str, ...],
    max_false_accepts: float,
    max_false_rejects: float,
    worst: int,
    file: Path | None,
    as_json: bool,
    rest: tuple[str, ...],
    **options: Any,
) -> None:
    """Attack the reward of the task NAME with wrong and right answers, made out of those that its solve() gives.

    Exits with 1 where it accepts more of the wrong ones, or refuses more of the right ones, than it may. Any other
    --NAME VALUE is an option of the task, and KEY=VALUE sets any key of the configuration.
    """
    from rlfactory_core.cli.ui.progress import make_progress
    from rlfactory_core.runner import TaskBench
    from rlfactory_core.settings import load_yaml
    from rlfactory_devkit.redteam import run_redteam

    overrides: list[str | Mapping[str, Any]] = [load_yaml(file)] if file else []
    overrides += [nested(options, {}), *task_options(rest)]
    with (
        make_progress(sys.stderr if as_json else sys.stdout) as progress,
        TaskBench(plugin, overrides, progress=progress) as bench,
    ):
        result = run_redteam(bench, samples=samples, seed=options["seed"] or 0, skip=skip, progress=progress)
    wrong, right = result.of_kind("wrong"), result.of_kind("right")
    passed = wrong.accept_rate <= max_false_accepts and right.reject_rate <= max_false_rejects
    if as_json:
        echo_json(_record(result, worst, passed=passed))
    else:
        click.echo("\n".join(_lines(result, worst)))
    ctx.exit(0 if passed else 1)


def _lines(result: RedTeamResult, worst: int) -> Iterator[str]:
    yield ""
    for kind, title in TITLES.items():
        rows = [(each, result.tally(each)) for each in result.mutations if each.kind == kind]
        rows = [(each, tally) for each, tally in rows if tally.tried or tally.masked]
        if rows:
            yield f"{click.style(f'{title:<20}', bold=True)}{'tried':>7}{'accepted':>10}"
        for each, tally in rows:
            line = f"  {each.name:<18}{tally.tried:>7,}{tally.accepted:>10,}   {each.what}"
            at_fault = {"wrong": tally.accepted, "right": tally.tried - tally.accepted}.get(kind)
            yield click.style(line, fg="red") if at_fault else line
        yield ""
    rates, by_success = _rates(result), _rates(result, by_success=True)
    yield rates
    if by_success != rates:
        yield f"by {result.success} alone: {by_success}"
    if result.masked:
        yield f"{result.masked:,} answers could not be scored (faults), and count as neither."
    if result.left_out:
        name, reason = next(iter(result.left_out.items()))
        yield printable(f"{len(result.left_out)} samples were left out; '{name}', because {reason}.")
    yield click.style(
        f"{result.plugin}, {len(result.samples)} samples, {result.seconds:.0f} s. Accepted is a reward at least "
        "halfway from what silence gets to what solve() gets.",
        dim=True,
    )
    for number, attempt in enumerate(result.worst(worst), 1):
        yield from ("", *_example(number, attempt))


def _rates(result: RedTeamResult, *, by_success: bool = False) -> str:
    wrong, right = (result.of_kind(kind, by_success=by_success) for kind in ("wrong", "right"))
    return (
        f"false accepts {wrong.accept_rate:.1%} ({wrong.accepted:,} of {wrong.tried:,} wrong answers), "
        f"false rejects {right.reject_rate:.1%} ({right.tried - right.accepted:,} of {right.tried:,} right answers)"
    )


def _example(number: int, attempt: Attempt) -> Iterator[str]:
    from rlfactory_devkit.redteam.running import shortened

    mutation, wrong = attempt.mutation, attempt.mutation.kind == "wrong"
    variant = f", {printable(shortened(attempt.variant, 60))}" if attempt.variant else ""
    title = f"{number}. false {'accept' if wrong else 'reject'}: {mutation.name}{variant}"
    yield click.style(title, bold=True)
    yield f"   sample   {printable(attempt.sample)}"
    yield f"   said     {printable(attempt.said)}"
    whose = "mostly from" if wrong else "lost most on"
    yield f"   reward   {attempt.reward:.3g}, accepted from {attempt.threshold:.3g} on; {whose} {attempt.by}"
    yield f"   remedy   {mutation.advice}"


def _record(result: RedTeamResult, worst: int, *, passed: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"plugin": result.plugin, "passed": passed, "seconds": result.seconds}
    found |= {"samples": result.samples, "left_out": result.left_out, "masked": result.masked}
    for suffix, by_success in (("", False), ("_by_success", True)):
        found[f"false_accept_rate{suffix}"] = result.of_kind("wrong", by_success=by_success).accept_rate
        found[f"false_reject_rate{suffix}"] = result.of_kind("right", by_success=by_success).reject_rate
    return found | {
        "success": result.success,
        "mutations": {each.name: {"kind": each.kind, **asdict(result.tally(each))} for each in result.mutations},
        "worst": [
            {
                **{each.name: getattr(attempt, each.name) for each in fields(attempt)},
                "mutation": attempt.mutation.name,
                "kind": attempt.mutation.kind,
                "components": dict(attempt.components),
                "advice": attempt.mutation.advice,
            }
            for attempt in result.worst(worst)
        ],
    }
