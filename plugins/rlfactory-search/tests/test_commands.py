from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from rlfactory_search.commands import search

from rlfactory_core.errors import DataError, UsageError


def test_query_shows_titles_and_texts(write_corpus: Callable[..., Path]) -> None:
    corpus = str(write_corpus("Oslune\nOslune is a city.", "Bracken\nBracken is in Oslune."))
    shown = CliRunner().invoke(search, ["query", "--corpus", corpus, "-k", "1", "bracken"], catch_exceptions=False)
    assert shown.exit_code == 0
    assert "Bracken  (id d1)" in shown.stdout
    assert "Bracken is in Oslune." in shown.stdout
    assert "Oslune is a city." not in shown.stdout
    assert "Indexing 2 of 2" in shown.stderr
    nothing = CliRunner().invoke(search, ["query", "--corpus", corpus, "zzz"], catch_exceptions=False)
    assert nothing.stdout == "Nothing found.\n"
    assert nothing.stderr == ""


def test_a_corpus_that_is_not_there_or_not_given_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        CliRunner().invoke(search, ["query", "--corpus", str(tmp_path / "no.jsonl"), "x"], catch_exceptions=False)
    with pytest.raises(UsageError, match="needs a corpus"):
        CliRunner().invoke(search, ["query", "x"], catch_exceptions=False)
