"""Answers that are kept: what counts as the same call, how much is kept, and a disk that fails in every way."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tool_calls import CONTEXT, Flaky, manage, write

from rlfactory_core.context import ToolContext
from rlfactory_core.errors import ConfigError
from rlfactory_core.tools import DefaultToolManager, FunctionTool, cache, tool
from rlfactory_core.tools.cache import MAX_ANSWER_CHARS, DiskCache, MemoryCache, answer_key
from rlfactory_core.types import ToolResult

FILE = "answers-2.sqlite"


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("RLFACTORY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tools"


def key(arguments: Any, name: str = "find", version: str = "1") -> str | None:
    async def find() -> None: ...

    return answer_key(FunctionTool(find, name, version=version), arguments)


def test_the_same_call_is_the_same_key() -> None:
    assert key({"a": 1, "b": {"c": [1, None], "d": "é"}}) == key({"b": {"d": "é", "c": [1, None]}, "a": 1})


def test_whatever_a_tool_could_tell_apart_has_a_key_of_its_own() -> None:
    values = [1, 1.0, True, "1", 0.0, -0.0, False, None, "", [], {}, [[]], "é", "e\u0301", "a,b", ["a", "b"], 2**70]
    keys = [key({"a": value}) for value in values]
    keys += [key({}), key({"b": 1}), key({"a": 1}, name="look"), key({"a": 1}, version="2")]
    assert None not in keys
    assert len(set(keys)) == len(keys)


def test_arguments_that_are_not_plain_json_have_no_key() -> None:
    nested: Any = "deep"
    for _ in range(50_000):
        nested = [nested]
    for value in ({1: "x"}, [{"b": {None: 1}}], {1, 2}, object(), b"x", nested, 10**5000):
        assert key({"a": value}) is None


def test_memory_is_bounded_and_what_was_not_asked_for_goes_first() -> None:
    async def work() -> None:
        kept = MemoryCache(max_bytes=10_000)
        for name in ("a", "b", "c"):
            kept.put(name, "find", name * 3000)
        assert await kept.get("a") == "a" * 3000
        kept.put("d", "find", "d" * 3000)
        assert [name for name in "abcd" if await kept.get(name) is not None] == ["a", "c", "d"]
        kept.put("huge", "find", "x" * (MAX_ANSWER_CHARS + 1))
        assert await kept.get("huge") is None
        assert await kept.get("a") is not None

    asyncio.run(work())


def with_disk(folder: Path, work: Callable[[DiskCache], Coroutine[Any, Any, Any]], **options: Any) -> Any:
    """Run ``work`` with a cache on disk, and see that its thread ends."""

    async def run() -> Any:
        kept = DiskCache(folder, **options)
        try:
            return await work(kept)
        finally:
            await kept.close()

    try:
        return asyncio.run(run())
    finally:
        for thread in threading.enumerate():
            if thread.name == "tool-cache":
                thread.join(5)
                assert not thread.is_alive()


async def keeps(kept: DiskCache) -> bool:
    kept.put("k", "find", "an answer: é")
    return await kept.get("k") == "an answer: é"


def test_the_disk_keeps_answers_over_runs(tmp_path: Path) -> None:
    async def first(kept: DiskCache) -> None:
        assert await kept.get("k") is None
        kept.put("k", "find", "an answer: é")
        kept.put("k", "find", "another")
        kept.put("huge", "find", "x" * (MAX_ANSWER_CHARS + 1))

    async def second(kept: DiskCache) -> list[str | None]:
        return [await kept.get("k"), await kept.get("huge")]

    with_disk(tmp_path / "made" / "here", first)
    assert with_disk(tmp_path / "made" / "here", second) == ["an answer: é", None]


def test_the_disk_is_bounded_and_the_oldest_answers_go_first(tmp_path: Path) -> None:
    limit, size = 400_000, 10_000

    async def work(kept: DiskCache) -> list[int]:
        for number in range(200):
            kept.put(str(number), "find", "x" * size)
        return [number for number in range(200) if await kept.get(str(number)) is not None]

    left = with_disk(tmp_path, work, max_bytes=limit)
    assert left == list(range(left[0], 200))  # the newest, without a gap
    assert 20 <= len(left) <= limit // size
    assert (tmp_path / FILE).stat().st_size < limit + 4 * size


PROCESS = """
import asyncio, logging, sys
from pathlib import Path
from rlfactory_core.tools.cache import DiskCache
logging.basicConfig(level=logging.WARNING)
async def main(me, folder):
    kept = DiskCache(Path(folder))
    for number in range(150):
        kept.put(f"common {number}", "find", "same")
        kept.put(f"{me} {number}", "find", f"{me} {number}")
        assert await kept.get(f"common {number}") == "same"
        assert await kept.get(f"{me} {number}") == f"{me} {number}"
    await kept.close()
asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.slow
def test_many_processes_share_one_file(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    processes = [
        subprocess.Popen([sys.executable, "-c", PROCESS, str(me), str(folder)], stderr=subprocess.PIPE, text=True)
        for me in range(4)
    ]
    for process in processes:
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (0, "")

    async def work(kept: DiskCache) -> set[str | None]:
        return {await kept.get(f"{me} {number}") for me in range(4) for number in range(150)}

    assert with_disk(folder, work) == {f"{me} {number}" for me in range(4) for number in range(150)}


def fill(folder: Path) -> Path:
    async def work(kept: DiskCache) -> None:
        for number in range(200):
            kept.put(str(number), "find", str(number) * 300)

    with_disk(folder, work)
    return folder / FILE


def scratch_the_middle(path: Path) -> None:
    with path.open("r+b") as file:
        for page in range(1, 20):
            file.seek(page * 4096)
            file.write(b"\xff" * 2000)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b"this was never a database" * 1000),
        lambda path: path.write_bytes(path.read_bytes()[:30_000]),
        scratch_the_middle,
    ],
)
def test_a_damaged_file_is_made_anew(
    tmp_path: Path, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    damage(fill(tmp_path))

    async def work(kept: DiskCache) -> bool:
        for number in range(200):
            assert await kept.get(str(number)) in (None, str(number) * 300)
        return await keeps(kept)

    assert with_disk(tmp_path, work)
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1
    assert "damaged" in caplog.text
    caplog.clear()
    assert with_disk(tmp_path, keeps)
    assert not caplog.records
    with sqlite3.connect(tmp_path / FILE) as file:
        assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    file.close()


def test_a_file_that_is_damaged_while_in_use_is_made_anew(tmp_path: Path) -> None:
    path = fill(tmp_path)

    async def work(kept: DiskCache) -> bool:
        assert await kept.get("7") == "7" * 300
        scratch_the_middle(path)
        for number in range(200):
            assert await kept.get(str(number)) in (None, str(number) * 300)
        return await keeps(kept)

    assert with_disk(tmp_path, work)


def test_a_folder_that_cannot_be_made_is_done_without(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("in the way")

    async def work(kept: DiskCache) -> list[bool]:
        return [await keeps(kept), await keeps(kept)]

    assert with_disk(tmp_path / "file" / "tools", work) == [False, False]
    assert len(caplog.records) == 1
    assert "cannot be used" in caplog.text


FULL = """
import asyncio, logging, resource, sys
from pathlib import Path
from rlfactory_core.tools.cache import DiskCache
logging.basicConfig(level=logging.WARNING, stream=sys.stdout, format="%(message)s")
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
async def main(folder):
    kept = DiskCache(Path(folder))
    for number in range(100):
        kept.put(str(number), "find", "x" * 10_000)
    found = [number for number in range(100) if await kept.get(str(number)) is not None]
    await kept.close()
    print("found", len(found))
asyncio.run(main(sys.argv[1]))
"""


def test_a_full_disk_is_done_without(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    first, last = done.stdout.splitlines()  # one warning
    assert "cannot be used" in first
    assert 0 < int(last.removeprefix("found ")) < 100


def test_a_disk_that_hangs_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    released, asked = threading.Event(), []

    def hang(path: Path) -> sqlite3.Connection:
        asked.append(path)
        released.wait(60)
        raise OSError("gone")

    monkeypatch.setattr(cache, "_open", hang)
    monkeypatch.setattr(cache, "_DISK_DEADLINE_S", 0.02)

    async def work(kept: DiskCache) -> None:
        try:
            assert [await kept.get("a"), await kept.get("b")] == [None, None]
            kept.put("a", "find", "x")
        finally:
            released.set()

    with_disk(tmp_path, work)
    assert len(asked) == 1
    assert "does not answer" in caplog.text


def ask(*tools: Any, **config: Any) -> list[tuple[str, bool]]:
    """Each tool once, with the same arguments."""

    async def work(manager: DefaultToolManager) -> list[ToolResult]:
        return [(await manager.invoke([write(spec.name, {"a": 1})], CONTEXT))[0] for spec in manager.specs]

    return [(result.content, result.cached) for result in manage(work, *tools, **config)]


def numbered(name: str, **options: Any) -> FunctionTool[..., Any]:
    count = iter(range(100))

    async def number(a: int) -> str:
        return f"{name} {next(count)}"

    return FunctionTool(number, name, **options)


def test_a_second_run_finds_the_first_ones_answers(own_cache: Path) -> None:
    assert ask(numbered("n", version="1"), cache="disk") == [("n 0", False)]
    assert ask(numbered("n", version="1"), cache="disk") == [("n 0", True)]
    assert ask(numbered("n", version="2"), cache="disk") == [("n 0", False)]
    assert os.listdir(own_cache)


def test_each_tool_may_have_its_own_cache(own_cache: Path) -> None:
    first = numbered("n", version="1"), numbered("m", version="1")
    for kept in (False, True):
        answers = ask(*first, cache="memory", overrides={"m": {"cache": "disk"}})
        assert [cached for _, cached in answers] == [False, kept]


def test_the_whole_answer_is_kept_and_cut_anew() -> None:
    @tool(version="1")
    async def long(a: int) -> str:
        return "0123456789\ud800" * 50

    async def work(manager: DefaultToolManager) -> ToolResult:
        return (await manager.invoke([write("long", {"a": 1})], CONTEXT))[0]

    short = manage(work, long, cache="disk", max_result_tokens=5)
    whole = manage(work, long, cache="disk", max_result_tokens=1000)
    assert (short.truncated, short.cached, short.size_bytes) == (True, False, 550)
    assert (whole.truncated, whole.cached, whole.size_bytes) == (False, True, 550)
    assert whole.content == "0123456789?" * 50


def test_what_has_no_version_is_kept_in_memory_only(own_cache: Path) -> None:
    def twice(made: FunctionTool[..., Any]) -> list[bool]:
        async def work(manager: DefaultToolManager) -> list[bool]:
            return [(await manager.invoke([write("n", {"a": 1})], CONTEXT))[0].cached for _ in range(2)]

        cached: list[bool] = manage(work, made, cache="disk")
        return cached

    assert [twice(numbered("n", version="")) for _ in range(2)] == [[False, True]] * 2
    assert not own_cache.exists()


def test_who_asks_by_name_for_a_cache_that_cannot_be_is_told_so() -> None:
    async def remembers(a: int, context: ToolContext) -> None: ...

    stateful = tool(remembers, name="s")
    assert ask(stateful, cache="disk") == [("(no output)", False)]
    assert ask(stateful, overrides={"s": {"cache": "off"}}) == [("(no output)", False)]
    for place in ("memory", "disk", True):
        with pytest.raises(
            ConfigError, match=r"tools\.overrides\.s\.cache: got .*, but s cannot have it: it is stateful"
        ):
            ask(stateful, overrides={"s": {"cache": place}})
    with pytest.raises(ConfigError, match=r"n cannot have it: it has no version .*give it one"):
        ask(numbered("n", version=""), overrides={"n": {"cache": "disk"}})
    assert ask(numbered("n", version=""), overrides={"n": {"cache": "memory"}}) == [("n 0", False)]


def test_failures_are_not_kept_on_disk() -> None:
    flaky = Flaky(1, idempotent=False)
    flaky.version = "1"  # type: ignore[misc]

    async def work(manager: DefaultToolManager) -> list[bool]:
        return [(await manager.invoke([write("flaky", {})], CONTEXT))[0].cached for _ in range(3)]

    assert manage(work, flaky, cache="disk") == [False, False, True]
