"""``rlfactory plugins doctor``: whether all plugins load, get on with each other and would in a worker too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rlfactory_core.engines.checks import Check
    from rlfactory_core.plugins.health import Examination, Health

Needs = dict[str, Sequence["Check"]]  # distribution -> of its base and of each extra, what is not as it should be


@click.command()
@click.option("--json", "as_json", is_flag=True, help="As a JSON object.")
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """Load every plugin; exit with 1 where one is broken or two are in each other's way."""
    from rlfactory_core.plugins.health import examine

    found = examine()
    needs = {item.entry.distribution: _needs(item.entry.distribution) for item in found.plugins}
    problems = _problems(found, needs)
    if as_json:
        click.echo(_as_json(found, needs, problems))
    else:
        for line in _lines(found, needs, problems):
            click.echo(line)
    ctx.exit(1 if problems else 0)


def _needs(distribution: str) -> Sequence[Check]:
    from rlfactory_core.cli.requirements import requirement_checks

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


def _as_json(found: Examination, needs: Needs, problems: int) -> str:
    import json
    from dataclasses import asdict

    from rlfactory_core.cli.plugin_info import entry_record
    from rlfactory_core.hookspecs import API_VERSION

    plugins = [
        {
            **entry_record(item.entry),
            **{key: value for key, value in asdict(item).items() if key != "entry"},
            "requirements": [asdict(check) for check in needs[item.entry.distribution]],
        }
        for item in found.plugins
    ]
    record = {
        "api": API_VERSION,
        "plugins": plugins,
        "conflicts": [str(conflict) for conflict in found.conflicts],
        "core_in_worker": found.core,
        "problems": problems,
    }
    return json.dumps(record, indent=2, ensure_ascii=False)


def _lines(found: Examination, needs: Needs, problems: int) -> Iterator[str]:
    from rlfactory_core.hookspecs import API_VERSION

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
    yield f"{problems} problem{'' if problems == 1 else 's'} found." if problems else "No problems found."


def _plugin(item: Health) -> Iterator[str]:
    if item.state == "broken":
        yield f"broken    {item.error}"
        yield from (f"          {line}" for line in item.traceback.rstrip().splitlines())
    else:
        speaks = f", plugin API {item.api}, fingerprint {item.fingerprint}" if item.state == "ok" else ""
        yield f"{item.state:<8}  {item.entry}{speaks}"
    if item.worker:
        yield _under("problem", f"in a worker: {item.worker}")
    for use in item.deprecated:
        yield _under("note", use)


def _under(state: str, text: str) -> str:
    return f"          {state:<8} {text}"
