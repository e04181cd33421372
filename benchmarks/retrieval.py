"""What retrieval costs as the corpus grows: building, size, memory, opening a built index, and queries.

    python benchmarks/retrieval.py --passages 10000 100000 1000000

Passages are generated: 60 to 100 words by Zipf's law over 200,000 made-up words, the commonest of which are English
function words, under a title of two rarer words, as names are. A query is a title and three words of its passage, as
policies write them. Every measurement runs in a process of its own, one library and one corpus each, so that memory
is that measurement's alone; bm25s is measured beside tantivy, which the plugin uses, for the choice between them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from machine import describe, publish, sized

VOCABULARY = 200_000
EXPONENT = 1.07
CONSONANTS = (*"bcdfghklmnprstvz", "br", "st", "tr")
VOWELS = (*"aeiou", "ai", "ou")
FUNCTION_WORDS = (  # noqa: SIM905
    "the of and to in a is that for it as was with be by on not he i this are or his from at which but have an had "
    "they you were their one all we can her has there been if more when will would who so no"
).split()
BATCH = 16  # queries answered together, as the trajectories of a step ask
BATCHES = sized(100, 3)
HEADER = f"""# BM25 retrieval as the corpus grows

`python benchmarks/retrieval.py {{command}}`

{{machine}}.
The plugin uses tantivy. {BATCHES} batches of {BATCH} queries, k = 3, page cache warm.
Opening includes importing the library. Peaks are resident memory, pages of memory-mapped files included.

| library | passages | corpus MB | build s | build peak MB | index MB | open s | batch p50 ms | batch p99 ms | ms a query | query peak MB |
|---|---|---|---|---|---|---|---|---|---|---|"""  # noqa: E501
RESULTS = Path(__file__).parent / "results" / "retrieval.md"


def words() -> list[str]:
    rng = np.random.default_rng(1)
    syllables = [c + v for c in CONSONANTS for v in VOWELS]
    made = ["".join(syllables[i] for i in rng.integers(0, len(syllables), 2 + (n > 5000))) for n in range(VOCABULARY)]
    return FUNCTION_WORDS + made[len(FUNCTION_WORDS) :]


def write_corpus(path: Path, passages: int) -> None:
    vocabulary, rng = words(), np.random.default_rng(0)
    weights = np.arange(1, VOCABULARY + 1) ** -EXPONENT
    cumulative = np.cumsum(weights / weights.sum())
    with path.open("w") as file:
        for number in range(passages):
            drawn = np.searchsorted(cumulative, rng.random(int(rng.integers(60, 101))))
            text = " ".join(vocabulary[min(i, VOCABULARY - 1)] for i in drawn)
            title = " ".join(vocabulary[i] for i in rng.integers(1000, VOCABULARY, 2))
            file.write(json.dumps({"id": str(number), "contents": f"{title}\n{text}"}) + "\n")


def queries(path: Path, count: int) -> list[str]:
    from rlfactory_search.corpus import FileCorpus

    corpus, rng = FileCorpus(path, path.parent / "offsets"), np.random.default_rng(2)
    asked = []
    for number in rng.integers(0, len(corpus), count):
        document = corpus[int(number)]
        asked.append(" ".join([document.title, *rng.choice(document.text.split(), 3)]))
    return asked


def memory_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def folder_mb(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 2**20


def open_tantivy(path: Path, cache: Path) -> Callable[[list[str]], Any]:
    """As the plugin does it, hashing of the corpus included; builds the index where there is none."""
    from rlfactory_search.corpus import FileCorpus
    from rlfactory_search.retrievers import make_retriever

    retriever = make_retriever("bm25", corpus=FileCorpus(path, cache), cache=cache)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(retriever.open())
    return lambda batch: loop.run_until_complete(retriever.search(batch, 3))


def open_bm25s(path: Path, cache: Path) -> Callable[[list[str]], Any]:
    import re

    import bm25s

    split, folder = re.compile(r"\w+").findall, str(cache)
    if not any(cache.iterdir()):
        index = bm25s.BM25()
        with path.open() as file:
            index.index([split(json.loads(line)["contents"].lower()) for line in file], show_progress=False)
        index.save(folder, show_progress=False)
    index = bm25s.BM25.load(folder, mmap=True)

    def search(batch: list[str]) -> Any:
        tokens = [[word for word in split(query.lower()) if word in index.vocab_dict] for query in batch]
        return index.retrieve(tokens, k=3, show_progress=False)

    return search


def measure(library: str, path: Path, cache: Path, step: str) -> dict[str, float]:
    open_index = {"tantivy": open_tantivy, "bm25s": open_bm25s}[library]
    asked = queries(path, BATCH * BATCHES) if step == "query" else []
    start = time.perf_counter()
    search = open_index(path, cache)
    opened = time.perf_counter() - start
    if step == "build":
        return {"build_s": opened, "build_mb": memory_mb(), "size_mb": folder_mb(cache)}
    times = []
    for number in range(0, len(asked), BATCH):
        start = time.perf_counter()
        search(asked[number : number + BATCH])
        times.append((time.perf_counter() - start) * 1e3)
    cuts = statistics.quantiles(times, n=100)
    return {"open_s": opened, "p50_ms": cuts[49], "p99_ms": cuts[98], "query_mb": memory_mb()}


def in_process(library: str, path: Path, cache: Path, step: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--measure", library, str(path), str(cache), step]
    answer: dict[str, float] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return answer


def row(library: str, passages: int, path: Path, cache: Path) -> str:
    cache.mkdir()
    built = in_process(library, path, cache, "build")
    asked = in_process(library, path, cache, "query")
    return (
        f"| {library} | {passages:,} | {path.stat().st_size / 2**20:.0f} | {built['build_s']:.1f} "
        f"| {built['build_mb']:.0f} | {built['size_mb']:.0f} | {asked['open_s']:.3f} | {asked['p50_ms']:.2f} "
        f"| {asked['p99_ms']:.2f} | {asked['p50_ms'] / BATCH:.3f} | {asked['query_mb']:.0f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, nargs="+", default=sized([10_000, 100_000], [200]))
    parser.add_argument("--libraries", nargs="+", default=["tantivy", "bm25s"])
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--measure", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        library, path, cache, step = arguments.measure
        print(json.dumps(measure(library, Path(path), Path(cache), step)))
        return
    lines = [HEADER.format(command=" ".join(sys.argv[1:]), machine=describe("tantivy", "bm25s"))]
    with tempfile.TemporaryDirectory() as folder:
        for passages in arguments.passages:
            path = Path(folder) / f"{passages}.jsonl"
            write_corpus(path, passages)
            os.utime(path, (time.time() - 60,) * 2)  # old enough for its hash to be remembered
            for library in arguments.libraries:
                lines.append(row(library, passages, path, Path(folder) / f"{library}-{passages}"))
                print(lines[-1], file=sys.stderr, flush=True)
            path.unlink()
    publish(arguments.out, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
