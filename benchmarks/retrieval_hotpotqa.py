"""How much of what HotpotQA questions need each retriever finds.

    python benchmarks/retrieval_hotpotqa.py DATA --dense MODEL_FOLDER

DATA holds ``questions.jsonl`` (``question``, ``supporting_titles``) and ``corpus.jsonl``. Recall@k is the mean, over
questions, of the fraction of supporting titles among the top k passages, found with the question's own text in one
search (as in HippoRAG). What a policy reaches by searching twice is more.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path
from statistics import mean

from machine import describe, publish, sized
from rlfactory_search.corpus import Document, FileCorpus
from rlfactory_search.retrievers import Retriever, make_retriever

CUTS = (2, 5)
RESULTS = Path(__file__).parent / "results" / "retrieval_hotpotqa.md"


async def row(name: str, retriever: Retriever, questions: list[dict[str, object]]) -> str:
    """One line of the table; the index is built in an empty cache."""
    start = time.perf_counter()
    await retriever.open()
    opened = time.perf_counter() - start
    recalls: dict[int, list[float]] = {k: [] for k in CUTS}
    seconds = []
    for question in questions:
        start = time.perf_counter()
        (hits,) = await retriever.search([str(question["question"])], max(CUTS))
        seconds.append(time.perf_counter() - start)
        titles = [Document(hit.id, hit.contents).title for hit in hits]
        wanted = set(question["supporting_titles"])  # type: ignore[call-overload]
        for k in CUTS:
            recalls[k].append(len(wanted & set(titles[:k])) / len(wanted))
    await retriever.close()
    found = " | ".join(f"{mean(recalls[k]):.3f}" for k in CUTS)
    return f"| {name} | {found} | {mean(seconds) * 1e3:.2f} | {opened:.1f} |"


def made_up(folder: Path) -> Path:
    """Two questions and their passages, for a miniature."""
    passages = {"Oslo": "Oslo lies on a fjord.", "Turin": "Turin lies on the river Po."}
    questions = [{"question": f"Where does {city} lie?", "supporting_titles": [city]} for city in passages]
    corpus = [{"id": city, "contents": f'"{city}"\n{text}'} for city, text in passages.items()]
    for name, rows in {"questions": questions, "corpus": corpus}.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs=sized(None, "?"))
    parser.add_argument("--dense", nargs="*", default=[], help="sentence-transformers folders, or NAME=FOLDER")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        data = arguments.data or made_up(cache)
        lines = (data / "questions.jsonl").read_text(encoding="utf-8").splitlines()
        questions = [json.loads(line) for line in lines]
        corpus = FileCorpus(data / "corpus.jsonl", cache)
        retrievers = {"bm25": make_retriever("bm25", corpus=corpus, cache=cache)}
        for model in arguments.dense:
            name, _, path = model.rpartition("=")
            label = f"dense, {name or Path(path).name}"
            retrievers[label] = make_retriever("dense", corpus=corpus, model=path, cache=cache)
        rows = [asyncio.run(row(name, retriever, questions)) for name, retriever in retrievers.items()]
    text = "\n".join(
        [
            f"{len(questions)} questions, {len(corpus)} passages. Made on {describe('tantivy')}.",
            "",
            "| retriever | " + " | ".join(f"recall@{k}" for k in CUTS) + " | ms a query | build s |",
            "|---|" + "---|" * (len(CUTS) + 2),
            *rows,
        ]
    )
    publish(arguments.out, f"# Retrieval on HotpotQA\n\n{text}\n")


if __name__ == "__main__":
    main()
