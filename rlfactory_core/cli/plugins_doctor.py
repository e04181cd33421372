"""``rlfactory plugins doctor``: loads every installed plugin, here and in a fresh process, and says what is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError
from typing import Literal

import click

from rlfactory_core.cli.options import found_text
from rlfactory_core.cli.output import echo, echo_json
from rlfactory_core.cli.plugins import entry_record
from rlfactory_core.errors import PluginError
from rlfactory_core.hookspecs import API_VERSION
from rlfactory_core.plugins.diagnostics import Check, requirement_checks
from rlfactory_core.plugins.discovery import PluginEntry, is_disabled
from rlfactory_core.plugins.fingerprint import Fingerprint, fingerprint
from rlfactory_core.plugins.loading import DEFAULT_API
from rlfactory_core.plugins.registry import BUILTIN, Registry

WORKER_S = 120.0  # for a fresh process to load the plugins


@dataclass(frozen=True, slots=True)
class Health:
    """The state of one plugin."""

    state: Literal["ok", "broken", "disabled"]
    api: str | None = None  # the versions of the plugin API that it supports; None: unknown
    error: str = ""  # why it is broken
    traceback: str = ""
    fingerprint: str = ""  # of its files; empty if it is not loaded
    worker: str = ""  # why a worker would refuse it
    requirements: Sequence[Check] = ()  # unmet ones of its base and of each extra

    @property
    def problems(self) -> int:
        unmet = any(check.state == "problem" for check in self.requirements)
        return 0 if self.state == "disabled" else unmet + (self.state == "broken" or bool(self.worker))


@click.command()
@click.option("--json", "as_json", is_flag=True, help="As a JSON object.")
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """Load every plugin; exit with 1 if one is broken or two conflict."""
    registry = Registry()
    for entry in registry.entries:
        if not is_disabled(entry):
            with redirect_stdout(sys.stderr), suppress(PluginError):  # the registry keeps what is broken
                registry.load(entry.qualified)
    refused = _refused_by_a_worker(registry.fingerprints())
    found = {entry: _health(registry, entry, refused) for entry in registry.entries}
    conflicts, core = [str(each) for each in registry.conflicts()], refused.get(BUILTIN.qualified, "")
    problems = sum(item.problems for item in found.values()) + len(conflicts) + bool(core)
    if as_json:
        plugins = [{**entry_record(entry), **asdict(item)} for entry, item in found.items()]
        record = {"plugins": plugins, "conflicts": conflicts, "core_in_worker": core, "problems": problems}
        echo_json({"api": API_VERSION, **record})
    else:
        lines = [f"This rlfactory-core speaks plugin API {API_VERSION}."]
        lines += [line for entry, item in found.items() for line in _lines(entry, item)]
        lines += [f"problem   {core}"] if core else []
        echo("\n".join([*lines, *(f"conflict  {each}" for each in conflicts), found_text(problems)]))
    ctx.exit(1 if problems else 0)


def _health(registry: Registry, entry: PluginEntry, refused: Mapping[str, str]) -> Health:
    try:
        needs = [check for check in requirement_checks(entry.distribution) if check.state != "ok"]
    except PackageNotFoundError:  # an entry point without a distribution's name
        needs = []
    if is_disabled(entry):
        return Health("disabled", requirements=needs)
    module = sys.modules.get(entry.module)  # also of a plugin that was refused for its version of the API
    api = None if module is None else str(getattr(module, "RLFACTORY_API", DEFAULT_API))
    broken = next((item for item in registry.broken if item.entry == entry), None)
    if broken is not None:
        return Health("broken", api, str(broken.error), broken.traceback, requirements=needs)
    mark = fingerprint(entry)
    return Health("ok", api, "", "", mark.digest, refused.get(mark.plugin, ""), needs)


def _lines(entry: PluginEntry, item: Health) -> Iterator[str]:
    if item.state == "broken":
        yield f"broken    {item.error}"
        yield from (f"          {line}" for line in item.traceback.rstrip().splitlines())
    else:
        speaks = f", plugin API {item.api}, fingerprint {item.fingerprint}" if item.state == "ok" else ""
        yield f"{item.state:<8}  {entry}{speaks}"
    if item.worker:
        yield f"          problem  in a worker: {item.worker}"
    for check in item.requirements if item.state != "disabled" else ():
        yield f"          {check.state:<8} {check.what}: {check.detail}"


def _refused_by_a_worker(fingerprints: Sequence[Fingerprint]) -> Mapping[str, str]:
    """Why a fresh process, such as a worker, refuses plugins, by qualified name.

    It refuses a plugin that is only found from the current working directory, or that writes into its own package when
    it is imported.
    """
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(  # noqa: S603 - this Python and this module
                [sys.executable, "-m", __name__],
                input=json.dumps([asdict(item) for item in fingerprints]),
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=WORKER_S,
                check=True,
            )
        except subprocess.TimeoutExpired:
            problem = f"A fresh process did not load the plugins within {WORKER_S:g} s."
        except subprocess.CalledProcessError as error:
            last = (error.stderr.strip().splitlines() or [f"exit code {error.returncode}"])[-1]
            problem = f"A fresh process could not look for the plugins: {last}"
        else:
            return dict(json.loads(done.stdout))
    return {item.plugin: problem for item in fingerprints}


def main() -> None:
    """The fresh process: it reads fingerprints as JSON, and writes which of them it refuses and why."""
    refused = {}
    with redirect_stdout(sys.stderr):  # a plugin may print when it is imported
        registry = Registry()
        for item in json.load(sys.stdin):
            try:
                registry.load_for_worker([Fingerprint(**item)])
            except PluginError as error:
                refused[item["plugin"]] = str(error)
    sys.stdout.write(json.dumps(refused))


if __name__ == "__main__":
    main()
