"""``rlfactory``: the main group with its commands and those of plugins, and the handling of errors."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import traceback
from collections.abc import Sequence
from typing import NoReturn

import click

from rlfactory_core.cli.commands import LazyCommand, LazyGroup, PluginCommand, plugin_command
from rlfactory_core.cli.output import echo, log_handler, open_standard_streams, safe_output
from rlfactory_core.errors import RlfactoryError, RunStopped, UsageError, nearest
from rlfactory_core.plugins.discovery import discover, is_disabled, matching
from rlfactory_core.version import __version__

DEBUG_VARIABLE = "RLFACTORY_DEBUG"
STOPPED = 130  # the exit code of a program that Ctrl-C ended
EXIT_S = 5.0  # for the threads of tools, after a command


COMMANDS = {
    "run": LazyCommand("rlfactory_core.cli.run:run", "Train a model on a plugin's task."),
    "eval": LazyCommand("rlfactory_core.cli.evaluate:evaluate", "Measure a model on a plugin's held-out samples."),
    "report": LazyCommand("rlfactory_core.cli.report:report", "Write a run's page of plots, at any time."),
    "trace": LazyCommand("rlfactory_core.cli.trace:trace", "Show a run's trajectories."),
    "rescore": LazyCommand("rlfactory_core.cli.rescore:rescore", "Score a run's trajectories anew, without sampling."),
    "play": PluginCommand("devkit", "play", "Talk to a model with a task's tools, and change its turns."),
    "export": LazyCommand("rlfactory_core.cli.export:export", "Write a run's model for other programs, and prove it."),
    "ui": PluginCommand("ui", "ui", "Start runs, watch them and look into them, in the browser."),
    "tools": LazyCommand("rlfactory_core.cli.tools:tools", "See a task's or MCP servers' tools, and call one by hand."),
    "samples": PluginCommand("devkit", "samples", "See data and prompts, and score an answer."),
    "memory": LazyCommand("rlfactory_core.cli.memory:memory", "Estimate the memory that a run needs."),
    "agents": PluginCommand("agents", "agents", "Try an agent of your own before it is trained."),
    "new": PluginCommand("devkit", "new", "Make a plugin of your own from a template."),
    "plugins": LazyCommand("rlfactory_core.cli.plugins:plugins", "List, describe and check the installed plugins."),
    "doctor": LazyCommand("rlfactory_core.cli.doctor:doctor", "Say what this machine and installation can do."),
}


_RUN = ("train", "fit", "finetune", "grpo", "ppo", "rl", "rft")  # as others call it


class MainGroup(LazyGroup):
    """Also finds the commands of plugins."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        """A command of ours, or that of the plugin of this name: an entry point's, or DISTRIBUTION:NAME."""
        if ours := super().get_command(ctx, cmd_name):
            return ours
        entries = discover()
        if matching(entries, cmd_name):
            return plugin_command(cmd_name, cmd_name.rpartition(":")[2])
        meant = "Did you mean 'run'? It trains on a task"
        if cmd_name not in _RUN:
            meant = nearest(cmd_name, [*COMMANDS, *(item.name for item in entries)])
        raise UsageError(f"There is no command '{cmd_name}'. {meant}")

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Lists all installed plugins, because only importing a plugin would show whether it has commands."""
        super().format_commands(ctx, formatter)
        shown = {command.plugin for command in self.lazy.values() if isinstance(command, PluginCommand)}
        others = (entry for entry in discover() if entry.name not in {*self.lazy, *shown} and not is_disabled(entry))
        if found := {entry.name: entry.summary for entry in others}:
            with formatter.section("Plugins"):
                formatter.write_dl(list(found.items()))


def _set_debug(_context: click.Context, _parameter: click.Parameter, given: bool) -> None:
    """A callback, because the option has to take effect before the command is looked up."""
    if given:
        os.environ[DEBUG_VARIABLE] = "1"  # worker processes inherit it
        logging.basicConfig(level=logging.WARNING, handlers=[log_handler()])
        logging.getLogger("rlfactory_core").setLevel(logging.DEBUG)


@click.group(
    cls=MainGroup,
    lazy=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="A plugin may bring commands under its own name: `rlfactory PLUGIN --help` lists them.",
)
@click.version_option(__version__, prog_name="rlfactory")
@click.option(
    "--debug",
    is_flag=True,
    expose_value=False,
    callback=_set_debug,
    help=f"Show the log, and tracebacks of errors; {DEBUG_VARIABLE}=1 shows the latter.",
)
def cli() -> None:
    """Reinforcement-learning post-training of LLMs on multi-turn tool use, one plugin a task."""


def invoke(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; errors become messages here."""
    with safe_output():
        return _invoke(arguments)


def _invoke(arguments: Sequence[str] | None) -> int:
    try:
        result = cli.main(arguments, prog_name="rlfactory", standalone_mode=False)
    except RlfactoryError as error:
        if os.environ.get(DEBUG_VARIABLE, "0") not in ("", "0"):
            echo(traceback.format_exc(), err=True)
        echo(str(error) if isinstance(error, RunStopped) else f"error: {error}", err=True)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except SystemExit as error:
        command = next(iter(sys.argv[1:] if arguments is None else arguments), "")
        if command not in COMMANDS:
            raise  # a plugin's own command may end like this
        frame = traceback.extract_tb(error.__traceback__)[-1]
        echo(
            f"error: {frame.filename}, line {frame.lineno} calls sys.exit({error.code!r}), which would end all that is "
            "under way without a word. Raise an exception there instead.",
            err=True,
        )
        return 1
    except (click.Abort, KeyboardInterrupt) as error:
        echo("stopped", err=True)
        interrupt = error.__cause__ if isinstance(error, click.Abort) else error  # click wraps it
        return int(interrupt.args[0]) if isinstance(interrupt, KeyboardInterrupt) and interrupt.args else STOPPED
    return result if isinstance(result, int) else 0


def main() -> NoReturn:
    """The console script."""
    open_standard_streams()
    try:
        code = invoke()
    except Exception:  # noqa: BLE001 - a bug, here or in a plugin; its message may quote a model, a tool or a server
        with safe_output():
            echo(traceback.format_exc().rstrip(), err=True)
        code = 1
    joined = threading.Event()
    atexit.register(joined.set)  # as the last one, it is called first: when no thread is waited for any more
    threading.Thread(target=_end, args=(code, joined), daemon=True).start()
    sys.exit(code)


def _end(code: int, joined: threading.Event) -> None:
    """End the process where a thread that a tool left keeps it, since the interpreter waits for such threads."""
    if not joined.wait(EXIT_S):
        echo("warning: a thread that a tool has started does not end, and ends with the program", err=True)
        atexit._run_exitfuncs()
        os._exit(code)
