"""What commands write: control characters are shown as what they are, and no output ends a command."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from reporting_examples import decode, make_trajectory
from rich.text import Text
from tool_calls import invoke, write

from rlfactory_core.cli.output import echo, echo_json, safe_output
from rlfactory_core.cli.trace import show
from rlfactory_core.cli.ui.console import make_console
from rlfactory_core.cli.ui.progress import PlainProgress, make_progress
from rlfactory_core.cli.ui.rich_progress import RichProgress
from rlfactory_core.reporting.trajectories import StoredTrajectory
from rlfactory_core.tools import tool
from rlfactory_core.utils.display import printable

HOSTILE = "a\x1b]52;c;cHduZWQ=\x07b\x1b[2Jc\x9b31md\re\u202ef\udc80g"


def harmless(text: str) -> bool:
    return not any(sign in text for sign in "\x1b\x07\x9b\r\u202e\udc80")


@pytest.mark.parametrize("text", ["", "plain", "tab\tand\nline", "Straße, 日本語, 🙂"])
def test_ordinary_text_is_shown_as_it_is(text: str) -> None:
    assert printable(text) == text


def test_control_characters_are_shown_as_what_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    echo(HOSTILE)
    shown = capsys.readouterr().out
    assert shown == "a\\x1b]52;c;cHduZWQ=\\x07b\\x1b[2Jc\\x9b31md\\re\\u202ef\\udc80g\n"
    echo_json({"text": HOSTILE})
    shown = capsys.readouterr().out
    assert harmless(shown)
    assert json.loads(shown) == {"text": HOSTILE}


def test_no_display_lets_them_through() -> None:
    stream = io.StringIO()
    make_console(stream, force_terminal=True).print(Text(HOSTILE, style="bold"))
    assert stream.getvalue().startswith("\x1b[1ma\\x1b]52")  # its own style works
    for progress in (PlainProgress(stream), RichProgress(stream)):
        stream.seek(0)
        stream.truncate()
        progress.say(HOSTILE)
        assert "\\x1b]52" in stream.getvalue()
        assert harmless(stream.getvalue())


def test_a_trajectory_cannot_control_the_terminal() -> None:
    stored = StoredTrajectory.of(make_trajectory(1.0), lambda ids: HOSTILE + decode(ids))
    stream = io.StringIO()
    show([stored], stream, where=HOSTILE, total=1, full=True)
    assert stream.getvalue().count("\\x1b]52") > 1
    assert harmless(stream.getvalue())


def rlfactory(arguments: str, rest: str) -> subprocess.CompletedProcess[str]:
    script = f"set -o pipefail; {sys.executable} -m rlfactory_core {arguments} {rest}"
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    "rest",
    ["| true", "| head -1", "> /dev/full", "2> /dev/full | true", "2>&1 > /dev/full", ">&-", "2>&-", "<&- >&- 2>&-"],
)
def test_output_that_nobody_reads_fails_no_command(rest: str) -> None:
    if "full" in rest and not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full here")
    for command, code in (("plugins list", 0), ("run --plugin no_such", 2)):
        done = rlfactory(command, rest)
        assert done.returncode == code, done
        assert "Traceback" not in done.stderr + done.stdout
        assert "Exception ignored" not in done.stderr + done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("error", ["ValueError", "rlfactory_core.errors.BackendError"])
def test_a_traceback_is_harmless(tmp_path: Path, error: str) -> None:
    (tmp_path / "raises.py").write_text(
        "import rlfactory_core\n"
        "class Raises(rlfactory_core.Task):\n"
        "    def samples(self, split):\n"
        f"        raise {error}('the server said \\x1b]52;c;aGk=\\x07')\n"
        "@rlfactory_core.hookimpl\n"
        "def rlfactory_tasks(register):\n"
        "    register('raises', Raises)\n"
    )
    done = rlfactory(f"--debug samples prompt --plugin {tmp_path}/raises.py", "")
    assert done.returncode != 0
    assert "Traceback" in done.stderr
    assert "the server said \\x1b]52;c;aGk=\\x07" in done.stderr
    assert harmless(done.stderr)


def test_what_a_tool_prints_goes_to_the_log(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    @tool
    def loud() -> str:
        """Print, in a thread."""
        print("loud and\nclear")
        return "done"

    caplog.set_level("INFO")
    with safe_output():
        assert invoke(write("loud", {}), loud).content == "done"
        print("ours")
    assert "tool loud printed: loud and\nclear" in caplog.text
    assert capsys.readouterr().out == "ours\n"


def test_a_tool_that_replaces_or_closes_the_streams_takes_nothing_from_the_display(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with safe_output():
        with make_progress(sys.stdout):
            redirect_stdout(io.StringIO()).__enter__()  # and another call's stream is put in place at its end
            redirect_stderr(io.StringIO()).__enter__()
        echo("the summary")
        echo("the error", err=True)
        sys.stdout.close()
        echo("the rest")
        sys.stdout = io.StringIO()
        sys.stdout.close()
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("the summary\nthe rest\n", "the error\n")
