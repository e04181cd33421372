from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest
from retrieval import memory, search
from rlfactory_search.corpus import Corpus, FileCorpus
from rlfactory_search.retrievers import Hit, make_retriever

from rlfactory_core.errors import MissingExtraError, ModelError

# Whoever collects these tests need not import what takes seconds.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec("sentence_transformers") is None or find_spec("faiss") is None, reason="needs rlfactory-search[dense]"
    ),
]

FACTS = ["Mira Tolvan\nMira Tolvan works for Bracken.", "Bracken\nBracken is in Oslune.", "Oslune\nOslune is a city."]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random embedding for every word of the facts: texts that share words are near."""
    import numpy as np
    from sentence_transformers import SentenceTransformer
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.normalizers import Lowercase
    from tokenizers.pre_tokenizers import Whitespace

    words = sorted({word.strip(".").lower() for text in FACTS for word in text.split()})
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(["[UNK]", *words])}, "[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = Lowercase(), Whitespace()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # this name for release 5, another one from 6 on
        from sentence_transformers.models import StaticEmbedding
    weights = np.random.default_rng(0).normal(size=(len(words) + 1, 32)).astype("float32")
    folder = tmp_path_factory.mktemp("model")
    SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=weights)], device="cpu").save(str(folder))
    return folder


def find(corpus: Corpus, model: Path, queries: Sequence[str], k: int = 2, passage_prefix: str = "") -> list[list[Hit]]:
    return search("dense", queries, k, corpus=corpus, model=model, passage_prefix=passage_prefix)


def test_the_nearest_document_comes_first(model: Path) -> None:
    (person, city) = find(memory(*FACTS), model, ["Mira Tolvan", "Oslune is a city \ud800"])
    assert person[0].id == "d0"
    assert city[0].id == "d2"
    assert person[0].contents == FACTS[0]
    assert 1.0 >= person[0].score > person[1].score


def test_equal_scores_are_in_the_order_of_the_corpus_and_k_may_be_too_big(model: Path) -> None:
    texts = [random.Random(number).choice(FACTS[:2]) for number in range(20)]
    same = [f"d{number}" for number, text in enumerate(texts) if text == FACTS[0]]
    (hits,) = find(memory(*texts), model, ["Mira Tolvan"], k=50)
    assert len(hits) == 20
    assert [hit.id for hit in hits[: len(same)]] == same


def test_an_index_is_reused_by_corpus_and_model(model: Path, write_corpus: Callable[..., Path], cache: Path) -> None:
    corpus = FileCorpus(write_corpus(*FACTS))
    once = find(corpus, model, ["Oslune"])
    (folder,) = (cache / "dense").iterdir()
    (index,) = folder.iterdir()
    written = index.stat().st_mtime_ns
    assert find(FileCorpus(corpus.path), model, ["Oslune"]) == once
    assert index.stat().st_mtime_ns == written
    find(corpus, model, ["Oslune"], passage_prefix="passage: ")
    assert len(list((cache / "dense").iterdir())) == 2


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelError, match="cannot be loaded as a sentence-transformers model"):
        find(memory(*FACTS), tmp_path, ["Oslune"])


def test_a_name_that_is_no_model_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelError, match="neither a folder nor"):
        find(memory(*FACTS), Path("no such/model here/at all"), ["Oslune"])


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "faiss", None)
    with pytest.raises(MissingExtraError, match=r"needs faiss.*pip install 'rlfactory-search\[dense\]'"):
        make_retriever("dense", corpus=memory(*FACTS), model=model)
