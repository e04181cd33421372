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
from asyncio.subprocess import PIPE, Process, SubprocessStreamProtocol
from collections.abc import Mapping, Sequence
from contextlib import suppress

from rlfactory_agents.samples import read_output, sample_json
from rlfactory_agents.workplace import Workplace, absolute_paths, absolute_words
from rlfactory_core.errors import ConfigError
from rlfactory_core.gateway import AgentError, AgentResult, Endpoint
from rlfactory_core.types import Sample
from rlfactory_core.utils.display import printable, shortened

MAX_OUTPUT = 8 * 2**20  # bytes of standard output in one attempt
_LAST_WORDS = 4000  # bytes of standard error that are kept
_LAST_LINES = 10  # of it that a fault shows
_GRACE_S = 2.0  # between SIGTERM and SIGKILL
_PASSED_ON = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TMPDIR", "TZ", "VIRTUAL_ENV", "PYTHONPATH", "NODE_PATH")


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
        self._workers = workers
        self._idle: asyncio.Queue[_Worker] | None = None

    async def __call__(self, sample: Sample, endpoint: Endpoint) -> AgentResult:
        """Play one attempt; the process and its children have ended afterwards, or wait in the pool.

        Raises:
            AgentError: it cannot be started, ends with an error, or writes too much.
        """
        if self._workers:
            return await self._in_pool(sample, endpoint)
        data = json.dumps(sample_json(sample), ensure_ascii=False)
        place = Workplace()
        file = place.file("sample.json", data)
        own = {**self._environment, **endpoint.environment, "RLFACTORY_SAMPLE": str(file)}
        worker = await _Worker.start(self._words, own, place)
        try:
            result = read_output(await worker.whole(data.encode("utf-8", "replace")))
            if result.answer is None and (words := await worker.last_words()):
                raise AgentError(f"it ended without an answer: {words}")
            return result
        finally:
            await worker.end()

    async def _in_pool(self, sample: Sample, endpoint: Endpoint) -> AgentResult:
        if self._idle is None:
            self._idle = asyncio.Queue()
            for _ in range(self._workers):
                self._idle.put_nowait(_Worker())
        worker = await self._idle.get()
        line = json.dumps({**sample_json(sample), "environment": endpoint.environment})
        try:
            if not worker.running:
                await worker.end()
                worker = await _Worker.start(self._words, self._environment, Workplace())
            return read_output(await worker.line(line.encode() + b"\n"))
        except BaseException:  # its state is unknown: the next attempt gets a fresh one
            await worker.end()
            raise
        finally:
            self._idle.put_nowait(worker)

    async def close(self) -> None:
        """End the pool's processes."""
        while self._idle is not None and not self._idle.empty():
            await self._idle.get_nowait().end()


class _Worker:
    """A process in a group of its own; None: a place in the pool whose process has still to be started."""

    def __init__(
        self,
        process: Process | None = None,
        exited: asyncio.Event | None = None,
        place: Workplace | None = None,
    ) -> None:
        self._process, self._place = process, place
        self._exited = exited or asyncio.Event()
        self._errors = b""
        self._listening = None if process is None else asyncio.ensure_future(self._listen(process))

    @classmethod
    async def start(cls, words: Sequence[str], environment: Mapping[str, str], place: Workplace) -> _Worker:
        loop = asyncio.get_running_loop()
        try:
            transport, protocol = await loop.subprocess_exec(
                lambda: _Streams(loop),
                *words,
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                env=dict(environment),
                start_new_session=True,
                cwd=place.folder,
            )
        except OSError as error:
            place.remove()
            raise AgentError(f"cannot start {words[0]!r}: {error.strerror or error}") from error
        return cls(Process(transport, protocol, loop), protocol.exited, place)

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def whole(self, given: bytes) -> bytes:
        """Write everything, and read everything up to its end. Children that hold its output do not count."""
        process, reader = self._reader()
        writing = asyncio.ensure_future(_write(process, given, close=True))
        reading = asyncio.ensure_future(_read(reader))
        ending = asyncio.ensure_future(self._exited.wait())
        try:
            await asyncio.wait((reading, ending), return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait((reading,), timeout=_GRACE_S)
            if not reading.done():
                reader.feed_eof()
            output = await reading
            await ending
        finally:
            for task in (writing, reading, ending):
                task.cancel()
            await asyncio.gather(writing, reading, ending, return_exceptions=True)
        if process.returncode:
            raise AgentError(await self._ended())
        return output

    async def line(self, given: bytes) -> bytes:
        """Write one line and read one."""
        process, reader = self._reader()
        await _write(process, given, close=False)
        try:
            line = await reader.readline()
        except ValueError as error:
            raise AgentError(f"it wrote a line of more than {MAX_OUTPUT:,} bytes") from error
        if not line:
            await self._exited.wait()
            raise AgentError(await self._ended())
        return line

    async def end(self) -> None:
        """End the process and everything in its group."""
        process, self._process = self._process, None
        if process is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)
            if number is signal.SIGTERM:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._exited.wait(), _GRACE_S)
        await self._exited.wait()
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
        process._transport.close()  # type: ignore[attr-defined]  # its pipes, which children may hold
        if self._place is not None:
            self._place.remove()

    def _reader(self) -> tuple[Process, asyncio.StreamReader]:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        return process, process.stdout

    async def _listen(self, process: Process) -> None:
        """Keep the end of its standard error."""
        assert process.stderr is not None
        while chunk := await process.stderr.read(65536):
            self._errors = (self._errors + chunk)[-_LAST_WORDS:]

    async def last_words(self) -> str:
        """The last lines of its standard error: in some languages the very last one says nothing of the error."""
        if self._listening is not None:
            await asyncio.wait((self._listening,), timeout=_GRACE_S)
        lines = [line.rstrip() for line in self._errors.decode(errors="replace").splitlines() if line.strip()]
        return "\n".join(printable(shortened(line, 300)) for line in lines[-_LAST_LINES:]).strip()

    async def _ended(self) -> str:
        process = self._process
        assert process is not None
        words = await self.last_words()
        code = process.returncode or 0
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with status {code}"
        return f"it {how}" + (f": {words}" if words else "")


class _Streams(SubprocessStreamProtocol):
    """The pipes of a process. `Process.wait` would also wait for its children, as long as they hold a pipe."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit=MAX_OUTPUT, loop=loop)
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        super().process_exited()
        self.exited.set()


async def _read(reader: asyncio.StreamReader) -> bytes:
    output = bytearray()
    while chunk := await reader.read(65536):
        output += chunk
        if len(output) > MAX_OUTPUT:
            raise AgentError(f"it wrote more than {MAX_OUTPUT:,} bytes to its standard output")
    return bytes(output)


async def _write(process: Process, given: bytes, *, close: bool) -> None:
    assert process.stdin is not None
    with suppress(BrokenPipeError, ConnectionResetError):  # it need not read
        process.stdin.write(given)
        await process.stdin.drain()
        if close:
            process.stdin.close()
