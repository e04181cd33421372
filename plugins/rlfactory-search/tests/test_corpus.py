from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from rlfactory_search.corpus import Document, FileCorpus, MemoryCorpus

from rlfactory_core.cache import build_once, file_digest
from rlfactory_core.errors import DataError


def test_documents_are_read_by_number(write_corpus: Callable[..., Path]) -> None:
    corpus = FileCorpus(write_corpus('"Alû"\nA demon.', "Lilu\nA spirit."))
    assert len(corpus) == 2
    assert corpus[1] == Document("d1", "Lilu\nA spirit.")
    assert corpus[0].title == "Alû"
    assert corpus[0].text == "A demon."
    assert [document.id for document in corpus] == ["d0", "d1"]


def test_a_title_loses_the_quotes_around_it_and_no_others() -> None:
    titles = ['"Alû"', '""Weird Al" Yankovic"', '"Heroes" (album)', '"', ""]
    assert [Document("0", f"{title}\nx").title for title in titles] == [
        "Alû",
        '"Weird Al" Yankovic',
        '"Heroes" (album)',
        '"',
        "",
    ]


def test_blank_lines_and_a_missing_last_newline_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "docs.jsonl"
    path.write_text('\n{"id": 1, "contents": "a"}\r\n  \n{"id": 2, "contents": "b"}')
    assert [(d.id, d.contents) for d in FileCorpus(path)] == [("1", "a"), ("2", "b")]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("{not json", "line 3: not JSON"),
        ('{"id": "1", "text": "x"}', r"line 3: no key 'contents', found the keys \['id', 'text'\]"),
        ('["a"]', "line 3: found list"),
        ('{"id": "1", "contents": null}', "line 3: 'contents' is NoneType"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, expected: str) -> None:
    path = tmp_path / "docs.jsonl"
    path.write_text('{"id": "0", "contents": "good"}\n\n' + line + "\n")
    with pytest.raises(DataError, match=expected):
        list(FileCorpus(path))


def test_a_missing_file_a_folder_and_an_empty_corpus_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere.jsonl does not exist\. Expected"):
        FileCorpus(tmp_path / "nowhere.jsonl")
    with pytest.raises(DataError, match="is a folder"):
        FileCorpus(tmp_path)
    for content in ("", "\n\n"):
        (tmp_path / "empty.jsonl").write_text(content)
        with pytest.raises(DataError, match=r"empty.jsonl is empty\. Expected"):
            FileCorpus(tmp_path / "empty.jsonl")
    with pytest.raises(DataError, match="0 documents"):
        MemoryCorpus([])


def test_the_fingerprint_follows_the_contents_and_not_the_name(write_corpus: Callable[..., Path]) -> None:
    one = FileCorpus(write_corpus("a", "b", name="one.jsonl"))
    two = FileCorpus(write_corpus("a", "b", name="two.jsonl"))
    other = FileCorpus(write_corpus("b", "a", name="other.jsonl"))
    assert one.fingerprint == two.fingerprint != other.fingerprint
    lists = [MemoryCorpus([Document("ab", "c")]), MemoryCorpus([Document("a", "bc")])]
    assert lists[0].fingerprint != lists[1].fingerprint


def test_a_digest_is_remembered_until_the_file_changes(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "docs.jsonl"
    path.write_text("first")
    os.utime(path, (1_000_000_000, 1_000_000_000))
    first = file_digest(path, cache)
    (memo,) = (cache / "digests").iterdir()
    memo.write_text(json.dumps({**json.loads(memo.read_text()), "digest": "from the memo"}))
    assert file_digest(path, cache) == "from the memo"
    os.utime(path, (1_000_000_001, 1_000_000_001))
    assert file_digest(path, cache) == first
    memo.write_text("{damaged")
    assert file_digest(path, cache) == first


def test_two_builders_at_once_end_with_one_whole_folder(tmp_path: Path) -> None:
    both_inside = threading.Barrier(2, timeout=60)

    def build(folder: Path) -> None:
        both_inside.wait()
        (folder / "file").write_text("whole")

    target = tmp_path / "cache" / "key"
    builders = [threading.Thread(target=build_once, args=(target, build)) for _ in range(2)]
    for builder in builders:
        builder.start()
    for builder in builders:
        builder.join()
    assert (target / "file").read_text() == "whole"
    assert list(target.parent.iterdir()) == [target]


def test_a_failed_build_leaves_nothing(tmp_path: Path) -> None:
    def build(folder: Path) -> None:
        (folder / "file").write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        build_once(tmp_path / "cache" / "key", build)
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"cannot be written to .*RLFACTORY_CACHE"):
        build_once(tmp_path / "file" / "key", lambda folder: None)
