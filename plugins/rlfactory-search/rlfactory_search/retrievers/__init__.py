"""Retrievers by name: BM25, a dense model, or a server."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeVar, get_args

from rlfactory_core.errors import ConfigError, UsageError, nearest
from rlfactory_search.corpus import Corpus
from rlfactory_search.retrievers.base import Hit, Progress, Retriever

RetrieverKind = Literal["bm25", "dense", "http"]

_T = TypeVar("_T")

__all__ = ["Hit", "Progress", "Retriever", "RetrieverKind", "make_retriever"]


def make_retriever(
    kind: str = "bm25",
    *,
    corpus: Corpus | None = None,
    model: Path | str | None = None,
    url: str | None = None,
    query_prefix: str = "",
    passage_prefix: str = "",
    device: str = "cpu",
    deadline_s: float = 10.0,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> Retriever:
    """Make a retriever. ``await retriever.open()`` then builds its index or connects to its server.

    Args:
        corpus: for bm25 and dense.
        model: for dense, a local sentence-transformers folder or a hub id.
        query_prefix, passage_prefix, device: for dense, see `dense.Encoder`.
        url: for http, a server with Search-R1's ``/retrieve``.
        deadline_s: for http, seconds for one request.
        cache: the folder of indexes; default `cache_root`.
        progress: called while an index is built.

    Raises:
        ConfigError: an unknown kind.
        UsageError: an option that this kind needs is missing.
        MissingExtraError: the kind's packages are not installed.
    """
    if kind not in get_args(RetrieverKind):
        raise ConfigError(f"Unknown retriever {kind!r}. {nearest(kind, get_args(RetrieverKind))}")
    if kind == "http":
        from rlfactory_search.retrievers.http import HttpRetriever

        return HttpRetriever(_given(url, kind, "url", "--url http://127.0.0.1:8000/retrieve"), deadline_s=deadline_s)
    documents = _given(corpus, kind, "corpus", "--corpus docs.jsonl")
    if kind == "bm25":
        from rlfactory_search.retrievers.bm25 import Bm25Retriever

        return Bm25Retriever(documents, cache=cache, progress=progress)
    from rlfactory_search.retrievers.dense import DenseRetriever, Encoder

    name = _given(model, kind, "model", "--model intfloat/e5-base-v2, or --retriever-model in `rlfactory run`")
    encoder = Encoder(str(name), query_prefix, passage_prefix, device)
    return DenseRetriever(documents, encoder, cache=cache, progress=progress)


def _given(value: _T | None, kind: str, option: str, example: str) -> _T:
    if value is None:
        raise UsageError(f"The {kind} retriever needs a {option}, got none. For example: {example}")
    return value
