"""Dense retrieval with a sentence-transformers model and exact inner-product search by faiss.

Exact search reads the whole index for each batch of queries, which is fast enough for a few million passages. The
index is built once for each corpus and model, and memory-mapped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlfactory_core.cache import build_once, cache_root, digest, file_digest
from rlfactory_core.errors import MissingExtraError, ModelError
from rlfactory_search.corpus import Corpus, Document
from rlfactory_search.retrievers.base import Hit, Progress, encodable

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_INDEX_VERSION = "1"
_ENCODE_AT_ONCE = 1024  # documents; progress is reported after each such batch
_BATCH = 64  # texts in one forward pass
_FILE = "flat.faiss"


@dataclass(frozen=True, slots=True)
class Encoder:
    """A sentence-transformers model, and how it is used."""

    model: str  # a local folder or a hub id
    query_prefix: str = ""  # e5 needs "query: ", for example; a model's own configuration may have it already
    passage_prefix: str = ""  # likewise "passage: "
    device: str = "cpu"  # of the model; the index is always in main memory


class DenseRetriever:
    """Cosine similarity of sentence embeddings.

    Raises:
        MissingExtraError: sentence-transformers or faiss is not installed.
    """

    def __init__(
        self, corpus: Corpus, encoder: Encoder, *, cache: Path | None = None, progress: Progress | None = None
    ) -> None:
        try:
            import faiss
            import sentence_transformers  # noqa: F401
        except ImportError as error:
            raise MissingExtraError(
                f"The dense retriever needs {error.name}, which is not installed. "
                "Run: python -m pip install 'rlfactory-search[dense]'"
            ) from error
        self._faiss: Any = faiss
        self._corpus = corpus
        self._encoder = encoder
        self._cache = cache or cache_root()
        self._progress = progress
        self._one_at_a_time = asyncio.Lock()  # the model is not thread-safe
        self._model: SentenceTransformer | None = None
        self._index: Any = None

    async def open(self) -> None:
        from sentence_transformers import SentenceTransformer

        folder = _model_folder(self._encoder.model)
        try:
            self._model = SentenceTransformer(str(folder), device=self._encoder.device)
        except (OSError, ValueError, KeyError) as error:
            raise ModelError(
                f"{folder} cannot be loaded as a sentence-transformers model: {error}. "
                "Expected a folder with modules.json, or a Hugging Face encoder."
            ) from error
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        named = [part for path in files for part in (str(path.relative_to(folder)), file_digest(path, self._cache))]
        parts = [_INDEX_VERSION, self._encoder.passage_prefix, self._corpus.fingerprint, *named]
        path = build_once(self._cache / "dense" / digest(parts), self._build) / _FILE
        self._index = self._faiss.read_index(str(path), self._faiss.IO_FLAG_MMAP_IFC)

    async def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        async with self._one_at_a_time:
            return await asyncio.to_thread(self._search, queries, k)

    async def close(self) -> None:
        self._model = self._index = None

    def _search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        if self._model is None:
            raise RuntimeError("The retriever is not open: await open() before search().")
        texts = [self._encoder.query_prefix + encodable(query) for query in queries]
        vectors = self._model.encode_query(texts, **_OPTIONS)
        scores, numbers = self._index.search(vectors, min(k, len(self._corpus)))
        return [
            [self._hit(int(number), -negative) for negative, number in sorted(zip(-row, found, strict=True))]
            for row, found in zip(scores, numbers, strict=True)
        ]

    def _hit(self, number: int, score: float) -> Hit:
        document = self._corpus[number]
        return Hit(document.id, document.contents, float(score))

    def _build(self, folder: Path) -> None:
        if self._model is None:
            raise RuntimeError("The model is loaded before the index is built.")
        index, total, done = None, len(self._corpus), 0
        for documents in _chunks(self._corpus, _ENCODE_AT_ONCE):
            texts = [self._encoder.passage_prefix + document.contents for document in documents]
            vectors = self._model.encode_document(texts, **_OPTIONS)
            if index is None:
                index = self._faiss.IndexFlatIP(vectors.shape[1])
            index.add(vectors)
            done += len(documents)
            if self._progress:
                self._progress(done, total)
        self._faiss.write_index(index, str(folder / _FILE))


_OPTIONS: dict[str, Any] = {
    "batch_size": _BATCH,
    "normalize_embeddings": True,
    "convert_to_numpy": True,
    "show_progress_bar": False,
}


def _chunks(corpus: Corpus, size: int) -> Iterator[list[Document]]:
    documents = iter(corpus)
    while chunk := list(islice(documents, size)):
        yield chunk


def _model_folder(name: str) -> Path:
    """The local folder of a model, whose files are hashed. A hub id is downloaded."""
    if Path(name).is_dir():
        return Path(name)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name))
    except (HFValidationError, HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise ModelError(
            f"The model {name!r} is neither a folder nor a model that the Hugging Face hub gives "
            f"({type(error).__name__}). Give a local sentence-transformers folder."
        ) from error
