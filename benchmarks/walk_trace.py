"""Runs ``rlfactory run`` and writes which of its functions call which; a part of `walk`.

python walk_trace.py TREE OUT.json run --plugin search ...
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
import threading
from asyncio.base_events import BaseEventLoop
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from weakref import WeakKeyDictionary

Chain = list[str]  # functions as FILE:NAME, each called by the one before
SAMPLER, MODEL = "rlfactory_core/engines/local/decoding/", "rlfactory_core/engines/local/model/"
TOOL = "rlfactory_search/task.py:SearchTask.search"


class Trace:
    """What is written: the calls in their order, and the first chains to a sampler and to the search tool."""

    def __init__(self, tree: str, loops: tuple[str, ...]) -> None:
        self._tree, self._loops = tree, loops
        self._names: dict[CodeType, str] = {}
        self._beginnings: WeakKeyDictionary[Any, Chain] = WeakKeyDictionary()  # by task: the chain that started it
        self._thread = threading.local()
        self.calls: list[tuple[str, str]] = []
        self.chains: dict[str, Chain] = {}

    def install(self) -> None:
        """Follow calls into tasks and into the threads of pools."""
        create, submit = BaseEventLoop.create_task, ThreadPoolExecutor.submit

        def create_task(loop: Any, job: Any, **options: Any) -> Any:
            task = create(loop, job, **options)
            self._beginnings[task] = self.chain(sys._getframe(1))
            return task

        def submitted(pool: Any, job: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
            begun = self.chain(sys._getframe(1))

            def run(*given: Any, **named: Any) -> Any:
                self._thread.begun = begun
                return job(*given, **named)

            return submit(pool, run, *arguments, **options)

        BaseEventLoop.create_task = create_task  # type: ignore[method-assign]
        ThreadPoolExecutor.submit = submitted  # type: ignore[method-assign]
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def chain(self, frame: FrameType | None) -> Chain:
        """Our functions that lead to a frame, over the tasks and threads that they start."""
        found = []
        while frame is not None and not frame.f_code.co_filename.endswith("asyncio/events.py"):
            if name := self._name(frame.f_code):
                found.append(name)
            frame = frame.f_back
        try:
            task = asyncio.current_task()
        except RuntimeError:
            task = None
        begun = self._beginnings.get(task, []) if task is not None else getattr(self._thread, "begun", [])
        return [*begun, *reversed(found)]

    def _name(self, code: CodeType) -> str:
        """Empty for others' functions, and for comprehensions and lambdas, which stand in a function of ours."""
        if code not in self._names:
            file = code.co_filename
            ours = file.startswith(self._tree) and not code.co_name.startswith("<")
            parts = Path(file).relative_to(self._tree).parts if ours else ()
            inside = parts[:1] == ("rlfactory_core",) or parts[:1] == ("plugins",)
            self._names[code] = f"{'/'.join(parts)}:{code.co_qualname}" if inside else ""
        return self._names[code]

    def _profile(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not (name := self._name(frame.f_code)):
            return
        caller = frame.f_back
        while caller is not None and not self._name(caller.f_code):
            caller = caller.f_back
        self.calls.append((self._name(caller.f_code) if caller is not None else "", name))
        kind = "tool" if name.endswith(TOOL) else "sampler" if name.startswith(SAMPLER) else ""
        if kind and kind not in self.chains and frame.f_code.co_flags & inspect.CO_COROUTINE:
            chain = self.chain(frame)
            if any(each.startswith(self._loops) for each in chain):
                self.chains[kind] = chain


def main() -> None:
    tree, out, loops, *arguments = sys.argv[1:]
    trace = Trace(tree, tuple(loops.split(",")))
    from rlfactory_core.cli.main import invoke

    trace.install()
    code = invoke(arguments)
    sys.setprofile(None)
    threading.setprofile(None)
    Path(out).write_text(json.dumps({"calls": trace.calls, "chains": trace.chains}), encoding="utf-8")
    sys.exit(code)


if __name__ == "__main__":
    main()
