"""The endpoint file: what a run reads from it, and what it says where it cannot."""

from __future__ import annotations

import dataclasses
import json
import os
import stat
from pathlib import Path

import pytest
from rlfactory_judge.serving.endpoint_file import (
    EndpointFile,
    default_endpoints,
    read_endpoints,
    remove_endpoints,
    write_endpoints,
)

from rlfactory_core.errors import UsageError

URLS = ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8001/v1")


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "new" / "endpoints.json"
    write_endpoints(path, EndpointFile("Qwen/QwQ-32B", URLS, os.getpid()))
    file = read_endpoints(path)
    assert (file.model, file.urls, file.pid) == ("Qwen/QwQ-32B", URLS, os.getpid())
    assert [*path.parent.iterdir()] == [path]


def test_its_usual_place_is_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLFACTORY_CACHE", str(tmp_path))
    assert default_endpoints() == tmp_path / "judge" / "endpoints.json"


def test_a_missing_file_says_how_to_start_the_servers(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no endpoint file .*e\.json\. .*rlfactory judge serve --model"):
        read_endpoints(tmp_path / "e.json")


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"model": "m", "urls": ["http://x/v1"',
        "[]",
        "{}",
        '{"model": "m", "urls": []}',
        '{"model": "m", "urls": "http://x/v1"}',
        '{"model": "m", "urls": ["x:8000"]}',
        '{"model": 3, "urls": ["http://x/v1"]}',
        '{"model": "m", "urls": ["http://x/v1"], "pid": "x"}',
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "endpoints.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"endpoints\.json is damaged .* Remove it"):
        read_endpoints(path)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "endpoints.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="cannot be read"):
        read_endpoints(path)


def test_a_file_written_by_hand_needs_only_model_and_urls(tmp_path: Path) -> None:
    path = tmp_path / "endpoints.json"
    path.write_text(json.dumps({"model": "m", "urls": URLS}))
    assert dataclasses.astuple(read_endpoints(path)) == ("m", URLS, None)


def test_only_its_writer_removes_it(tmp_path: Path) -> None:
    path = tmp_path / "endpoints.json"
    write_endpoints(path, EndpointFile("m", URLS, os.getpid()))
    remove_endpoints(path, os.getpid() + 1)
    assert path.exists()
    remove_endpoints(path, os.getpid())
    assert not path.exists()
    remove_endpoints(path, os.getpid())


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"cannot be written .* --endpoints"):
        write_endpoints(tmp_path / "file" / "endpoints.json", EndpointFile("m", URLS))


def test_others_do_not_read_it(tmp_path: Path) -> None:
    path = tmp_path / "endpoints.json"
    write_endpoints(path, EndpointFile("m", URLS))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
