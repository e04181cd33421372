"""The code interpreter as a tool: `code_interpreter`."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from rlfactory_core import ToolContext
from rlfactory_core.errors import BackendError, UsageError, nearest
from rlfactory_core.types import ToolSpec
from rlfactory_interpreter.forkserver import GUARDS, forkserver, missing_guards
from rlfactory_interpreter.limits import InterpreterLimits
from rlfactory_interpreter.process import Interpreter
from rlfactory_interpreter.session import Session

_log = logging.getLogger(__name__)

_SPARE_S = 75.0  # for starting and ending processes, within the tool's deadline
_CODE = {"type": "string", "description": "Python source code."}
_PARAMETERS = {"type": "object", "properties": {"code": _CODE}, "required": ["code"], "additionalProperties": False}
_DESCRIPTION = (
    "Run Python code as in a notebook: variables, functions and files stay from call to call. Returns what the code "
    "prints and the value of its last expression. There is no network; no other programs can be started, and files "
    "can be written in the current directory only."
)


class CodeInterpreter:
    """The tool that `code_interpreter` makes; ``reads`` are its ``preload``, ``packages`` and ``readable``."""

    idempotent = False
    stateful = True
    version = f"python {sys.version_info[0]}.{sys.version_info[1]}"

    def __init__(
        self, spec: ToolSpec, limits: InterpreterLimits, reads: tuple[tuple[str, ...], ...], require: tuple[str, ...]
    ) -> None:
        self._rebuild = (spec, limits, reads, require)
        self.spec, self._limits, self._required = spec, limits, require
        self._forkserver = forkserver(limits, *reads)
        self._warned = False
        # A call waits for earlier calls of the same turn, and then has its own time.
        self._queue_s = 2 * limits.seconds
        self.deadline_s: float | None = self._queue_s + limits.seconds + _SPARE_S

    def __repr__(self) -> str:
        return f"<tool {self.spec.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return CodeInterpreter, self._rebuild

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        """Run ``arguments["code"]`` in the trajectory's interpreter. See `protocols.Tool`."""

        async def begin() -> Session:
            session = Session(self._start, self._limits, self._queue_s)
            context.on_end(session.close)
            return session

        session = await context.once(self, begin)
        return await session.run(arguments["code"])

    async def close(self) -> None:
        """End all processes. A later call starts new ones."""
        await self._forkserver.aclose()

    async def _start(self) -> Interpreter:
        process = await Interpreter.start(self._forkserver, self._limits.output_bytes)
        try:
            _check_required(self._required, process.missing)
        except UsageError as error:
            await process.end()
            raise BackendError(str(error)) from error
        if process.missing and not self._warned:
            self._warned = True
            described = _describe(process.missing)
            _log.warning("tool %s runs the model's code without some guards: %s", self.spec.name, described)
        return process


def _check_required(required: Sequence[str], missing: Mapping[str, str]) -> None:
    if wanting := [guard for guard in required if guard in missing]:
        raise UsageError(
            f"code_interpreter: {' and '.join(wanting)} cannot be guarded here. Missing guards: {_describe(missing)}. "
            "Run on another platform, or remove it from require=… to run the model's code without that guard."
        )


def _describe(missing: Mapping[str, str]) -> str:
    return ", ".join(f"{guard} ({reason})" for guard, reason in sorted(missing.items()))


def _check_names(given: Iterable[str], known: Collection[str]) -> None:
    for item in given:
        if item not in known:
            raise UsageError(f"code_interpreter: there is no limit or guard {item!r}. {nearest(item, known)}")


def _check_installed(**modules: Sequence[str]) -> None:
    for what, named in modules.items():
        for module in named:
            if find_spec(module.partition(".")[0]) is None:
                raise UsageError(f"code_interpreter: {what} names {module!r}, which is not installed.")


def code_interpreter(
    name: str = "code_interpreter",
    *,
    description: str = _DESCRIPTION,
    preload: Sequence[str] = (),
    packages: Sequence[str] = (),
    readable: Sequence[str | os.PathLike[str]] = (),
    require: Sequence[str] = (),
    **limits: float,
) -> CodeInterpreter:
    """A tool that runs the model's Python code, in one process per trajectory.

    The process has this Python, its standard library and the named packages. A separate *fork server* forks it. It
    lives until the trajectory ends, and is paused between calls. Code that exceeds a limit is killed. The model is told
    the reason, and its next call starts a new process. Exceptions and crashes of the code are ``tool`` faults. If no
    process can be started, that is an ``infra`` fault. The time limit is wall-clock time. So for code that computes
    much, set ``tools.overrides.code_interpreter.concurrency`` to the number of cores.

    The guards, and where they exist:

    - *memory* (address space), processor time, file sizes, open files, time, output: on every platform, except memory
      on macOS. The total size of files and the number of threads are checked four times a second. Files without a name
      are not counted.
    - *network*: no sockets. Linux on x86-64 and aarch64 (seccomp).
    - *processes*: no new processes or other programs, no signals to other processes, no access to them. Linux likewise.
    - *files*: the code reads only Python's standard library, the packages in ``preload`` and ``packages`` with what
      they require, the system's libraries and ``readable``. Other installed packages may hold answers. It writes only
      into the process's own directory, which is removed with it. It cannot read other processes' memory and
      environment. Linux 6.2 and later (Landlock). Names, sizes and dates of other files stay visible. Changes of
      permissions and dates seem to succeed and have no effect.
    - Environment variables are not inherited, on any platform.

    A missing guard is logged once as a warning. If ``require`` names it, the tool refuses to run. The guards stop
    accidents, and what a policy finds by trying during training. They do not stop an attacker, because the code runs as
    the same user and on the same kernel as the training.

    Args:
        description: the tool's description for the model.
        preload: modules that the fork server imports once, so that trajectories import them at no cost. They must not
            start threads at import. Their random state is the same in all trajectories.
        packages: more modules of installed packages that the code may import, such as ``numpy``.
        readable: more files and directories that the code may read.
        require: guards that must be there: ``files``, ``memory``, ``network``, ``processes``.
        **limits: the fields of `InterpreterLimits`, for example ``seconds=5``, ``memory_mb=512``.

    Raises:
        UsageError: an unknown limit, guard or module, an invalid value, or a required guard that this platform lacks.
    """
    _check_names(limits, InterpreterLimits.__dataclass_fields__)
    _check_names(require, GUARDS)
    _check_installed(preload=preload, packages=packages)
    if require:
        _check_required(require, missing_guards())
    return CodeInterpreter(
        ToolSpec(name, description, _PARAMETERS),
        InterpreterLimits(**limits),  # type: ignore[arg-type]
        (tuple(preload), tuple(packages), tuple(os.fspath(path) for path in readable)),
        tuple(require),
    )
