"""Images that tools return: their names in texts, their files, and their limits."""

from __future__ import annotations

import asyncio
import json
import os
import time
from base64 import b64encode
from importlib import import_module
from io import BytesIO
from pathlib import Path

import PIL.Image
import pytest

from rlfactory_core import FaultKind, Sample, ToolContext, tool
from rlfactory_core.errors import DataError
from rlfactory_core.images import MAX_BYTES, MAX_IMAGES, Image, content_text, images_in
from rlfactory_core.reporting import folder as run_folder
from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.reporting.trajectories import StoredTrajectory, TurnText
from rlfactory_core.tools.cache import DiskCache
from rlfactory_core.tools.manager import DefaultToolManager
from rlfactory_core.tools.settings import ToolsConfig
from rlfactory_core.types import Message, StopReason, ToolCall, ToolResult, Trajectory, Turn


def png(colour: str = "red", size: tuple[int, int] = (4, 3), kind: str = "png") -> bytes:
    file = BytesIO()
    PIL.Image.new("RGB", size, colour).save(file, kind)
    return file.getvalue()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RLFACTORY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "images"


def test_a_png_file_is_kept_as_it_is_and_found_by_its_name() -> None:
    image = Image.of(png())
    (found,) = images_in(f"Before {image} after")
    assert str(image).startswith("[image 4x3 png ")
    assert found == image
    assert found.read() == png()


def test_equal_files_are_one_image_and_others_are_not(cache: Path) -> None:
    red = Image.of(png())
    assert red == Image.of(png())
    assert red != Image.of(png("blue"))
    assert len(list(cache.glob("*.png"))) == 2


def test_other_formats_and_pillow_images_become_png_files() -> None:
    for source in (png(kind="jpeg"), PIL.Image.new("P", (4, 3)), PIL.Image.new("CMYK", (4, 3))):
        image = Image.of(source)
        with PIL.Image.open(BytesIO(image.read())) as read:
            assert (read.format, read.size) == ("PNG", (4, 3))


def test_a_name_without_a_file_is_no_image() -> None:
    assert not images_in("[image 4x3 png 0123456789ab] [image of a cat]")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (png()[:50], "cannot be read"),
        (b"\x89PNG\r\n\x1a\nrubbish", "cannot be read"),
        (b"\xff\xd8\xff", "cannot be read"),
        (png(size=(8000, 4000)), "8000 x 4000 pixels; at most 16,777,216"),
        (b"\x89PNG\r\n\x1a\n" + bytes(MAX_BYTES), "bytes; at most 20,971,520"),
    ],
)
def test_what_cannot_be_shown_is_refused_with_the_reason(source: bytes, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        Image.of(source)


def test_a_list_of_texts_and_images_has_a_line_for_each() -> None:
    text = content_text(["Left:", png(), PIL.Image.new("RGB", (2, 2)), Image.of(png("blue"))])
    assert [image.width for image in images_in(text)] == [4, 2, 4]
    assert text.splitlines()[0] == "Left:"
    assert len(text.splitlines()) == 4


def test_too_many_images_are_refused() -> None:
    with pytest.raises(DataError, match=f"{MAX_IMAGES + 1} images; at most {MAX_IMAGES}"):
        content_text([png()] * (MAX_IMAGES + 1))


def test_data_without_images_stays_as_it_was() -> None:
    assert content_text(["a", 1]) == '["a",1]'
    assert content_text({"data": b"a"}) == '{"data":"YQ=="}'


def test_images_are_removed_a_week_after_their_last_use(cache: Path) -> None:
    old, used = Image.of(png()), Image.of(png("blue"))
    long_ago = time.time() - 8 * 86_400
    for path in (old.path, used.path, cache / ".swept"):
        os.utime(path, (long_ago, long_ago))
    used.read()
    Image.of(png("green"))
    assert not old.path.exists()
    assert used.path.exists()


@tool
def look(size: int) -> list[object]:
    """Look around.

    Args:
        size: of the image.
    """
    return ["You see:", PIL.Image.new("RGB", (size, size), "red")]


async def _look(size: int) -> ToolResult:
    manager = DefaultToolManager([look], ToolsConfig())
    try:
        call = ToolCall("call_0", "look", json.dumps({"size": size}), {"size": size})
        return (await manager.invoke([call], ToolContext("t", Sample("s", "?"))))[0]
    finally:
        await manager.close()


def test_a_tool_returns_an_image_among_texts() -> None:
    result = asyncio.run(_look(5))
    (image,) = images_in(result.content)
    assert result.fault is None
    assert result.content == f"You see:\n{image}"


def test_a_tools_image_that_is_too_large_is_the_tools_fault_and_the_user_reads_why() -> None:
    result = asyncio.run(_look(5000))
    assert result.fault is FaultKind.TOOL
    assert "5000 x 5000 pixels" in result.reason
    assert "5000" not in result.content


def stored(*images: Image) -> StoredTrajectory:
    results = tuple(ToolResult(f"call_{number}", "look", f"See {image}") for number, image in enumerate(images))
    turn = Turn((), (), (), Message("assistant", ""), results)
    return StoredTrajectory(Trajectory(Sample("s", "?"), 0, (turn,), StopReason.ENV_DONE), (TurnText("", ""),))


def test_a_runs_folder_keeps_the_images_that_its_trajectories_name(tmp_path: Path, cache: Path) -> None:
    image = Image.of(png())
    folder = RunFolder.create("task", tmp_path / "run")
    folder.write_stored(1, [stored(image)])
    image.path.unlink()
    assert (folder.images / f"{image.digest}.png").read_bytes() == png()
    assert [each.trajectory.turns[0].results[0].content for each in folder.read_trajectories(1)] == [f"See {image}"]


def test_a_run_keeps_images_up_to_a_limit_and_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(run_folder, "MAX_IMAGE_BYTES", 2 * len(png()) + 9)
    folder = RunFolder.create("task", tmp_path / "run")
    colours = [Image.of(png(colour)) for colour in ("red", "blue", "green", "black")]
    folder.write_stored(1, [stored(colours[0])])
    folder.write_stored(2, [stored(*colours)])
    folder.write_stored(3, [stored(*colours)])
    kept = {path.stem for path in folder.images.iterdir()}
    assert len(kept) == 2
    assert colours[0].digest in kept
    assert [record.message.count("the most that a run keeps") for record in caplog.records] == [1]
    assert len(list(folder.read_trajectories(3))) == 1


def test_results_with_images_are_not_kept_on_disk(tmp_path: Path) -> None:
    async def work() -> list[str | None]:
        cache = DiskCache(tmp_path)
        cache.put("with", "look", f"See {Image.of(png())}")
        cache.put("without", "look", "See nothing")
        found = [await cache.get("with"), await cache.get("without")]
        await cache.close()
        return found

    assert asyncio.run(work()) == [None, "See nothing"]


@pytest.mark.parametrize(
    "client", ["rlfactory_mcp.calls:render", "rlfactory_environments.openenv.results:read_mcp_result"]
)
def test_an_image_of_an_mcp_server_is_named_and_a_damaged_one_is_a_note(client: str) -> None:
    module, _, name = client.partition(":")
    pytest.importorskip(module.partition(".")[0], reason="a plugin of its own")
    good, bad = (
        {"type": "image", "mimeType": "image/jpeg", "data": b64encode(data).decode()}
        for data in (png(kind="jpeg"), b"rubbish")
    )
    read = getattr(import_module(module), name)({"content": [{"type": "text", "text": "See"}, good, bad]})
    text, image, note = (read if isinstance(read, str) else read.text).splitlines()
    assert (text, note[:6]) == ("See", "[image")
    assert [found.width for found in images_in(image)] == [4]


def test_a_base64_text_is_no_image() -> None:
    assert content_text(b64encode(png()).decode()).startswith("iVBOR")
