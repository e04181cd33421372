from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from retrieval import memory, search
from rlfactory_search.corpus import Corpus, Document, FileCorpus
from rlfactory_search.retrievers import Hit, make_retriever
from rlfactory_search.retrievers.bm25 import Bm25Retriever

from rlfactory_core.errors import ConfigError, DataError, UsageError

FACTS = [
    "Mira Tolvan\nMira Tolvan works for the company Bracken Ltd.",
    "Bracken Ltd\nThe company Bracken Ltd is based in the city of Oslune.",
    "Oslune\nOslune is a city in the country of Verrania.",
    "Mira Selko\nMira Selko works for the company Dray Foods.",
]


def find(corpus: Corpus, queries: Sequence[str], k: int = 3) -> list[list[Hit]]:
    return search("bm25", queries, k, corpus=corpus)


def ids(hits: Sequence[Hit]) -> list[str]:
    return [hit.id for hit in hits]


def test_the_best_document_comes_first_with_its_whole_contents() -> None:
    (employer, city) = find(memory(*FACTS), ["who employs Mira Tolvan?", "where is bracken ltd BASED"])
    assert ids(employer) == ["d0", "d3"]
    assert employer[0].contents == FACTS[0]
    assert employer[0].score > employer[1].score > 0
    assert ids(city)[0] == "d1"


def test_words_are_folded_and_stemmed() -> None:
    assert ids(find(memory("Alû\nDemons"), ["alu"])[0]) == ["d0"]
    assert ids(find(memory("Dice\nA game of the demons"), ["demon games"])[0]) == ["d0"]


def test_a_file_gives_the_same_answer_as_a_list(write_corpus: Callable[..., Path]) -> None:
    queries = ["Mira", "the city of Verrania", "nothing of the kind"]
    assert find(FileCorpus(write_corpus(*FACTS)), queries) == find(memory(*FACTS), queries)


@pytest.mark.parametrize("words", ["alpha", "alpha beta", "alpha c1"])
def test_equal_scores_are_in_the_order_of_the_corpus(words: str) -> None:
    contents = [f"alpha beta c{number % 4}" for number in range(3000)]
    matching = [f"d{n}" for n, text in enumerate(contents) if set(words.split()) <= set(text.split())]
    assert ids(find(memory(*contents), [words], k=20)[0]) == matching[:20]


def test_no_words_no_hits() -> None:
    assert find(memory(*FACTS), ["", "the of", "?!", "zzz"]) == [[], [], [], []]


@pytest.fixture(scope="module")
def facts() -> Bm25Retriever:
    retriever = Bm25Retriever(memory(*FACTS))
    asyncio.run(retriever.open())
    return retriever


@settings(max_examples=200, deadline=None)
@given(text=st.text(alphabet=st.characters(), max_size=60))
def test_any_text_is_a_query(facts: Bm25Retriever, text: str) -> None:
    (hits,) = asyncio.run(facts.search([text], 3))
    assert len(hits) <= 3


@pytest.mark.parametrize("text", ["\ud800 Mira", 'contents:"x" AND (', "Mira " * 20_000, "\x00Mira\x00"])
def test_what_models_write_is_no_syntax(facts: Bm25Retriever, text: str) -> None:
    (hits,) = asyncio.run(facts.search([text], 3))
    assert ("d0" in ids(hits)) == ("Mira" in text)


def test_an_index_is_built_once_and_again_when_the_corpus_changes(
    write_corpus: Callable[..., Path], cache: Path
) -> None:
    calls: list[tuple[int, int]] = []

    def opened(path: Path) -> list[tuple[int, int]]:
        calls.clear()
        retriever = make_retriever("bm25", corpus=FileCorpus(path), progress=lambda *at: calls.append(at))
        asyncio.run(retriever.open())
        return list(calls)

    assert opened(write_corpus(*FACTS))[-1] == (4, 4)
    assert opened(write_corpus(*FACTS, name="a_copy.jsonl")) == []
    assert opened(write_corpus(*FACTS, "one more"))[-1] == (5, 5)
    assert len(list((cache / "bm25").iterdir())) == 2


def test_a_bad_line_far_down_leaves_no_index(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "docs.jsonl"
    path.write_text(json.dumps({"id": "0", "contents": "good"}) + '\n{"id": "1"}\n')
    retriever = make_retriever("bm25", corpus=FileCorpus(path))
    with pytest.raises(DataError, match="line 2: no key 'contents'"):
        asyncio.run(retriever.open())
    assert list((cache / "bm25").iterdir()) == []


def test_a_damaged_index_says_what_to_delete(write_corpus: Callable[..., Path], cache: Path) -> None:
    corpus = FileCorpus(write_corpus(*FACTS))
    find(corpus, ["Mira"])
    (folder,) = (cache / "bm25").iterdir()
    (folder / "meta.json").write_text("{")
    with pytest.raises(DataError, match=r"damaged.*Delete that folder"):
        find(corpus, ["Mira"])


def test_a_big_corpus_is_searched_off_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlfactory_search.retrievers.bm25._THREAD_FROM", 0)
    assert ids(find(memory(*FACTS), ["Mira Tolvan"])[0])[0] == "d0"


def test_what_cannot_be_made_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"Unknown retriever 'bm52'\. Did you mean 'bm25'"):
        make_retriever("bm52")
    with pytest.raises(UsageError, match="bm25 retriever needs a corpus"):
        make_retriever("bm25")
    with pytest.raises(UsageError, match="http retriever needs a url"):
        make_retriever("http")
    with pytest.raises(UsageError, match="dense retriever needs a model"):
        make_retriever("dense", corpus=memory("a"))


def test_recall_on_hotpotqa(hotpotqa: Path) -> None:
    """The README's table says 0.785; a changed analyzer or ranking shows here."""
    questions = [json.loads(line) for line in (hotpotqa / "questions.jsonl").read_text(encoding="utf-8").splitlines()]
    found = find(FileCorpus(hotpotqa / "corpus.jsonl"), [question["question"] for question in questions], k=5)
    recalls = []
    for question, hits in zip(questions, found, strict=True):
        titles = {Document(hit.id, hit.contents).title for hit in hits}
        recalls.append(len(titles & set(question["supporting_titles"])) / len(set(question["supporting_titles"])))
    assert sum(recalls) / len(recalls) == pytest.approx(0.785, abs=0.02)
