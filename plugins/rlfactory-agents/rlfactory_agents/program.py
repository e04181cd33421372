"""Runs an agent that is a program, in any language: one process for each attempt, or a pool of processes.

The program gets the sample as a JSON object on its standard input and in the file ``$RLFACTORY_SAMPLE``:
``{"id": …, "prompt": …, "messages": […], "metadata": {…}}``. The accepted answer is not in it. The address and the key
of the model are in the variables that SDKs read (`Endpoint.environment`). It gives its answer at the end of its
standard output, as `read_output` reads it: a text, or ``{"answer": …, "reward": …, "metadata": …}``.

A process of the pool instead reads one line of JSON for each attempt, the sample with ``"environment"`` beside it, and
writes one line. It knows all attempts that it has played.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import tempfile
from asyncio.subprocess import PIPE, Process, SubprocessStreamProtocol
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from rlfactory_core.errors import ConfigError
from rlfactory_core.gateway import AgentError, AgentResult, Endpoint
from rlfactory_core.types import Sample
from rlfactory_core.utils.display import printable, shortened

MAX_OUTPUT = 8 * 2**20  # bytes of standard output in one attempt
STDERR = 2
_LAST_WORDS = 4000  # bytes of standard error that are kept
_LAST_LINES = 10  # of it that a fault shows
_GRACE_S = 2.0  # between SIGTERM and SIGKILL
_PATHS = ("PYTHONPATH", "NODE_PATH", "VIRTUAL_ENV")
_PASSED_ON = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TMPDIR", "TZ", *_PATHS)


class ProgramAgents:
    """An `Agent` that is a command.

    Args:
        command: as in a shell, but run without one.
        environment: names of further variables of this process that it gets, such as another service's key.
        workers: processes that play one attempt after the other; 0: a fresh process for each attempt.

    Raises:
        ConfigError: the command is empty or cannot be read, or a variable is not set.
    """

    def __init__(self, command: str, environment: Sequence[str] = (), workers: int = 0) -> None:
        try:
            self._words = shlex.split(command)
        except ValueError as error:
            raise ConfigError(f"agent.command={command!r} cannot be read: {error}.") from error
        missing = [name for name in environment if name not in os.environ]
        if not self._words or missing:
            wrong = f"agent.environment names {', '.join(missing)}, which is not set" if missing else "it is empty"
            raise ConfigError(f"agent.command={command!r}: {wrong}.")
        names = (*_PASSED_ON, *environment)
        self._words = absolute_words(self._words)
        self._environment = {name: absolute_paths(name, os.environ[name]) for name in names if name in os.environ}
        self._idle: asyncio.Queue[_Worker | None] = (
            asyncio.Queue()
        )  # the pool; None: its process is still to be started
        self._workers = workers
        for _ in range(workers):
            self._idle.put_nowait(None)

    async def __call__(self, sample: Sample, endpoint: Endpoint) -> AgentResult:
        """Play one attempt; the process and its children have ended afterwards, or wait in the pool.

        Raises:
            AgentError: it cannot be started, ends with an error, or writes too much.
        """
        if self._workers:
            return await self._in_pool(sample, endpoint)
        place = Workplace()
        file = place.file("sample.json", json.dumps(sample_json(sample), ensure_ascii=False))
        own = {**self._environment, **endpoint.environment, "RLFACTORY_SAMPLE": str(file)}
        with file.open("rb") as given:
            worker = await _Worker.start(self._words, own, place, given)
        try:
            result = read_output(await worker.output())
            if result.answer is None and (words := await worker.last_words()):
                raise AgentError(f"it ended without an answer: {words}")
            return result
        finally:
            await worker.end()

    async def _in_pool(self, sample: Sample, endpoint: Endpoint) -> AgentResult:
        worker = await self._idle.get()
        line = json.dumps({**sample_json(sample), "environment": endpoint.environment})
        try:
            if worker is None or not worker.running:
                if worker is not None:
                    await worker.end()
                worker = await _Worker.start(self._words, self._environment, Workplace())
            return read_output(await worker.line(line.encode() + b"\n"))
        except BaseException:  # its state is unknown: the next attempt gets a fresh one
            if worker is not None:
                await worker.end()
            raise
        finally:
            self._idle.put_nowait(worker)

    async def close(self) -> None:
        """End the pool's processes."""
        for _ in range(self._idle.qsize()):
            if worker := self._idle.get_nowait():
                await worker.end()
            self._idle.put_nowait(None)


class _Streams(SubprocessStreamProtocol):
    """The pipes of a process. `Process.wait` would also wait for its children, as long as they hold a pipe."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit=MAX_OUTPUT, loop=loop)
        self._loop = loop
        self.exited = asyncio.Event()
        self.errors = b""  # the end of its standard error

    def pipe_data_received(self, fd: int, data: bytes | str) -> None:
        if fd == STDERR and isinstance(data, bytes):
            self.errors = (self.errors + data)[-_LAST_WORDS:]
        else:
            super().pipe_data_received(fd, data)

    def process_exited(self) -> None:
        super().process_exited()
        self.exited.set()
        for stream in filter(None, (self.stdout, self.stderr)):
            self._loop.call_later(_GRACE_S, stream.feed_eof)  # a child may hold it


class _Worker:
    """A process in a group of its own."""

    def __init__(self, process: Process, streams: _Streams, place: Workplace) -> None:
        self._process, self._streams, self._place = process, streams, place
        self._ended = False

    @classmethod
    async def start(
        cls, words: Sequence[str], environment: Mapping[str, str], place: Workplace, given: IO[bytes] | int = PIPE
    ) -> _Worker:
        """Start the program, which reads what is ``given``."""
        loop = asyncio.get_running_loop()
        try:
            transport, streams = await loop.subprocess_exec(
                lambda: _Streams(loop),
                *words,
                stdin=given,
                stdout=PIPE,
                stderr=PIPE,
                env=dict(environment),
                start_new_session=True,
                cwd=place.folder,
            )
        except OSError as error:
            place.remove()
            raise AgentError(f"cannot start {words[0]!r}: {error.strerror or error}") from error
        return cls(Process(transport, streams, loop), streams, place)

    @property
    def running(self) -> bool:
        return not self._ended and self._process.returncode is None

    async def output(self) -> bytes:
        """Everything that it writes. Children that hold its output do not count."""
        output = bytearray()
        while chunk := await self._stdout.read(65536):
            output += chunk
            if len(output) > MAX_OUTPUT:
                raise AgentError(f"it wrote more than {MAX_OUTPUT:,} bytes to its standard output")
        await self._streams.exited.wait()
        if self._process.returncode:
            raise AgentError(await self._how_it_ended())
        return bytes(output)

    async def line(self, given: bytes) -> bytes:
        """Write one line and read one."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError, ConnectionResetError):  # it need not read
            self._process.stdin.write(given)
            await self._process.stdin.drain()
        try:
            line = await self._stdout.readline()
        except ValueError as error:
            raise AgentError(f"it wrote a line of more than {MAX_OUTPUT:,} bytes") from error
        if not line:
            await self._streams.exited.wait()
            raise AgentError(await self._how_it_ended())
        return line

    async def end(self) -> None:
        """End the process and everything in its group."""
        if self._ended:
            return
        self._ended = True
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)
            if number is signal.SIGTERM:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._streams.exited.wait(), _GRACE_S)
        await self._streams.exited.wait()
        self._process._transport.close()  # type: ignore[attr-defined]  # its pipes, which children may hold
        self._place.remove()

    async def last_words(self) -> str:
        """The last lines of its standard error: in some languages the very last one says nothing of the error."""
        assert self._process.stderr is not None
        await self._process.stderr.read()  # its end
        lines = [line.rstrip() for line in self._streams.errors.decode(errors="replace").splitlines() if line.strip()]
        return "\n".join(printable(shortened(line, 300)) for line in lines[-_LAST_LINES:]).strip()

    @property
    def _stdout(self) -> asyncio.StreamReader:
        assert self._process.stdout is not None
        return self._process.stdout

    async def _how_it_ended(self) -> str:
        words = await self.last_words()
        code = self._process.returncode or 0
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with status {code}"
        return f"it {how}" + (f": {words}" if words else "")


class Workplace:
    """A new folder with a link to each entry of the folder in which rlfactory was started, until `remove`.

    Relative paths in the command, in the program and in the variables so mean what they meant there.
    """

    def __init__(self) -> None:
        self._place = tempfile.TemporaryDirectory(prefix="rlfactory-agent-", ignore_cleanup_errors=True)
        self.folder = Path(self._place.name, "work")
        self.folder.mkdir()
        for entry in os.scandir():
            (self.folder / entry.name).symlink_to(Path(entry.path).absolute())

    def file(self, name: str, text: str) -> Path:
        """A new file beside the folder."""
        path = Path(self._place.name, name)
        path.write_text(text, encoding="utf-8", errors="replace")
        return path

    def remove(self) -> None:
        """Remove the folder and what it holds, but nothing to which it links."""
        self._place.cleanup()


def absolute_words(words: Sequence[str]) -> list[str]:
    """The words of a command; those that lead to a place above the folder are absolute."""
    return [os.path.abspath(word) if word.startswith("..") and os.path.exists(word) else word for word in words]


def absolute_paths(name: str, value: str) -> str:
    """The value of a variable; folders of a search path are absolute."""
    return os.pathsep.join(map(os.path.abspath, value.split(os.pathsep))) if name in _PATHS and value else value


def sample_json(sample: Sample) -> dict[str, Any]:
    """What a program sees of a sample: not its answer."""
    messages = [{"role": message.role, "content": message.content} for message in sample.messages]
    users = [message.content for message in sample.messages if message.role == "user"]
    metadata = json.loads(json.dumps(dict(sample.metadata), default=str))
    return {"id": sample.id, "prompt": users[-1] if users else "", "messages": messages, "metadata": metadata}


def read_output(output: bytes) -> AgentResult:
    """The answer in a program's output.

    It is the last line that is not empty; several lines if they end with ``</answer>``, from ``<answer>`` on and
    without these tags; or a JSON object that ends the output.

    Raises:
        AgentError: as `AgentResult.of`.
    """
    text = output.decode(errors="replace").rstrip()
    if not text:
        return AgentResult(None)
    lines = text.splitlines()
    last = lines[-1].strip()
    if last.endswith("</answer>") and "<answer>" not in last and "<answer>" in text:
        return AgentResult.of(text.rpartition("<answer>")[2].removesuffix("</answer>").strip())
    begins = [number for number, line in enumerate(lines[:-1]) if line.startswith("{")] if last.endswith("}") else []
    for tried in (last, *("\n".join(lines[number:]) for number in begins[-1:])):
        if (value := _json(tried)) is not None:
            return AgentResult.of(value)
    return AgentResult.of(last)


def _json(text: str) -> Mapping[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
