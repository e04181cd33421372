"""The code interpreter as a tool: `code_interpreter`."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from rlfactory_core.errors import BackendError, UsageError, nearest
from rlfactory_core.tool_context import ToolContext
from rlfactory_core.tools.interpreter.limits import InterpreterLimits
from rlfactory_core.tools.interpreter.process import Process
from rlfactory_core.tools.interpreter.processes import Processes
from rlfactory_core.tools.interpreter.session import Session
from rlfactory_core.tools.interpreter.warden import unguarded
from rlfactory_core.types import ToolSpec

_log = logging.getLogger(__name__)

GUARDS = ("files", "memory", "network", "processes")
_SPARE_S = 75.0  # for starting and ending processes, within the tool's deadline
_DESCRIPTION = (
    "Run Python code as in a notebook: variables, functions and files stay from call to call. Returns what the code "
    "prints and the value of its last expression. There is no network; no other programs can be started, and files "
    "can be written in the current directory only."
)


class CodeInterpreter:
    """See `code_interpreter`, which makes it."""

    idempotent = False
    stateful = True
    version = f"python {sys.version_info[0]}.{sys.version_info[1]}"

    def __init__(
        self,
        name: str,
        description: str,
        limits: InterpreterLimits,
        preload: tuple[str, ...],
        readable: tuple[str, ...],
        require: tuple[str, ...],
    ) -> None:
        self._rebuild = (name, description, limits, preload, readable, require)
        self._limits, self._required = limits, require
        self._processes = Processes(limits, preload, readable)
        self._warned = False
        code = {"type": "string", "description": "Python source code."}
        self.spec = ToolSpec(
            name=name,
            description=description,
            parameters={
                "type": "object",
                "properties": {"code": code},
                "required": ["code"],
                "additionalProperties": False,
            },
        )
        # A call waits for those of the same turn before it; then it has its own time.
        self._patience_s = 2 * limits.seconds
        self.deadline_s: float | None = self._patience_s + limits.seconds + _SPARE_S

    def __repr__(self) -> str:
        return f"<tool {self.spec.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return CodeInterpreter, self._rebuild

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        """Run ``arguments["code"]`` in the trajectory's interpreter; see `protocols.Tool`."""

        async def begin() -> Session:
            session = Session(self._start, self._limits, self._patience_s)
            context.on_end(session.close)
            return session

        session = await context.once(self, begin)
        return await session.run(arguments["code"])

    async def close(self) -> None:
        """End everything. A later call begins anew."""
        await self._processes.close()

    async def _start(self) -> Process:
        process, missing = await self._processes.start()
        try:
            _insist(self._required, missing)
        except UsageError as error:
            await process.end()
            raise BackendError(str(error)) from error
        if missing and not self._warned:
            self._warned = True
            _log.warning("tool %s runs the model's code without some guards: %s", self.spec.name, _told(missing))
        return process


def _check_names(limits: Iterable[str], preload: Iterable[str], require: Iterable[str]) -> None:
    known = InterpreterLimits.__dataclass_fields__
    for given, names in ((limits, known), (require, GUARDS)):
        for item in given:
            if item not in names:
                raise UsageError(f"code_interpreter: there is no limit or guard {item!r}. {nearest(item, names)}")
    for module in preload:
        if find_spec(module.partition(".")[0]) is None:
            raise UsageError(f"code_interpreter: preload names {module!r}, which is not installed.")


def _insist(required: Sequence[str], missing: Mapping[str, str]) -> None:
    if wanting := [guard for guard in required if guard in missing]:
        raise UsageError(
            f"code_interpreter: {' and '.join(wanting)} cannot be guarded here. Not guarded: {_told(missing)}. Run on "
            "another platform, or leave it out of require=… and let the model's code run without that guard."
        )


def _told(missing: Mapping[str, str]) -> str:
    return ", ".join(f"{guard} ({reason})" for guard, reason in sorted(missing.items()))


def code_interpreter(
    name: str = "code_interpreter",
    *,
    description: str = _DESCRIPTION,
    preload: Sequence[str] = (),
    readable: Sequence[str | os.PathLike[str]] = (),
    require: Sequence[str] = (),
    **limits: float,
) -> CodeInterpreter:
    """A tool with which the model runs Python, in a process of its own for each trajectory.

    The process is this Python with its packages, forked from a *warden* that runs beside this process. It lives until
    the trajectory ends, and stands still between calls. Code that does not keep to a limit is killed; the model is told
    why, and its next call begins anew. What the code does, exceptions and crashes included, is a ``tool`` fault; where
    no process can be started it is an ``infra`` fault. Time is taken by the clock: let no more codes run at once than
    the machine has cores for, with ``tools.overrides.code_interpreter.concurrency``, where they calculate much.

    What holds, and where:

    - *memory* (address space), processor time, size of files, open files, time, output: everywhere; memory not on
      macOS. The sum of the files and the number of threads are looked at four times a second, and files without a name
      not at all.
    - *network*: no sockets. Linux on x86-64 and aarch64 (seccomp).
    - *processes*: no new ones and no other programs, no signals to others, no hand on others. Likewise.
    - *files*: reading is limited to Python's own and the system's libraries and ``readable``, writing to the process's
      own directory, which is removed with it; no look at other processes' memory and environment. Linux 6.2 and later
      (Landlock). Names, sizes and dates of other files can still be seen. Changes of permissions and dates seem to
      succeed and have no effect.
    - The environment's variables are not handed on, anywhere.

    Where a guard is missing, a warning says so once; where ``require`` names it, the tool refuses to run. All of them
    together stop accidents and what a policy in training finds by trying. They are no jail for an adversary: the code
    runs under the same user and the same kernel as the training.

    Args:
        description: what the model is told.
        preload: modules imported once by the warden, so that importing them costs the trajectories nothing. They must
            not start threads at import, and random states of theirs are the same in all trajectories.
        readable: files and directories that the code may read besides.
        require: guards without which not to run: any of ``files``, ``memory``, ``network``, ``processes``.
        **limits: the fields of `InterpreterLimits`, for example ``seconds=5``, ``memory_mb=512``.

    Raises:
        UsageError: an unknown limit, guard or module, a value that makes no sense, or a required guard that this
            platform lacks.
    """
    _check_names(limits, preload, require)
    if require:
        _insist(require, unguarded())
    return CodeInterpreter(
        name,
        description,
        InterpreterLimits(**limits),  # type: ignore[arg-type]
        tuple(preload),
        tuple(os.fspath(path) for path in readable),
        tuple(require),
    )
