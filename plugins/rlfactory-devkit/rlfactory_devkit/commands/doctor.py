"""``rlfactory plugins doctor``: loads every installed plugin, and says what is wrong with any."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError

import click

from rlfactory_core.cli.options import found_text
from rlfactory_core.cli.output import echo, echo_json
from rlfactory_core.cli.plugins import entry_record
from rlfactory_core.hookspecs import API_VERSION
from rlfactory_core.plugins.diagnostics import Check, requirement_checks
from rlfactory_devkit.health import Examination, Health, examine

Needs = dict[str, Sequence[Check]]  # distribution -> unmet requirements of its base and of each extra


@click.command()
@click.option("--json", "as_json", is_flag=True, help="As a JSON object.")
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """Load every plugin; exit with 1 if one is broken or two conflict."""
    found = examine()
    needs = {item.entry.distribution: _needs(item.entry.distribution) for item in found.plugins}
    problems = _problems(found, needs)
    if as_json:
        echo_json(_health_record(found, needs, problems))
    else:
        for line in _health_lines(found, needs, problems):
            echo(line)
    ctx.exit(1 if problems else 0)


def _needs(distribution: str) -> Sequence[Check]:
    try:
        return [check for check in requirement_checks(distribution) if check.state != "ok"]
    except PackageNotFoundError:
        return []  # an entry point without a distribution's name


def _problems(found: Examination, needs: Needs) -> int:
    enabled = [item for item in found.plugins if item.state != "disabled"]
    unmet = {item.entry.distribution for item in enabled} & {
        name for name, checks in needs.items() if any(check.state == "problem" for check in checks)
    }
    wrong = sum(item.state == "broken" or bool(item.worker) for item in enabled)
    return wrong + len(unmet) + len(found.conflicts) + bool(found.core)


def _health_record(found: Examination, needs: Needs, problems: int) -> dict[str, object]:
    plugins = [
        {
            **entry_record(item.entry),
            **{key: value for key, value in asdict(item).items() if key != "entry"},
            "requirements": [asdict(check) for check in needs[item.entry.distribution]],
        }
        for item in found.plugins
    ]
    return {
        "api": API_VERSION,
        "plugins": plugins,
        "conflicts": [str(conflict) for conflict in found.conflicts],
        "core_in_worker": found.core,
        "problems": problems,
    }


def _health_lines(found: Examination, needs: Needs, problems: int) -> Iterator[str]:
    yield f"This rlfactory-core speaks plugin API {API_VERSION}."
    if not found.plugins:
        yield "No plugins are installed."
    for item in found.plugins:
        yield from _plugin(item)
        if item.state != "disabled":
            yield from (
                _under(check.state, f"{check.what}: {check.detail}") for check in needs[item.entry.distribution]
            )
    if found.core:
        yield f"problem   {found.core}"
    for conflict in found.conflicts:
        yield f"conflict  {conflict}"
    yield found_text(problems)


def _plugin(item: Health) -> Iterator[str]:
    if item.state == "broken":
        yield f"broken    {item.error}"
        yield from (f"          {line}" for line in item.traceback.rstrip().splitlines())
    else:
        speaks = f", plugin API {item.api}, fingerprint {item.fingerprint}" if item.state == "ok" else ""
        yield f"{item.state:<8}  {item.entry}{speaks}"
    if item.worker:
        yield _under("problem", f"in a worker: {item.worker}")


def _under(state: str, text: str) -> str:
    return f"          {state:<8} {text}"
