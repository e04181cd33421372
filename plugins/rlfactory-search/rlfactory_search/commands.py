"""``rlfactory search``: serve a corpus to other machines, or query it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlfactory_core.utils.display import printable

if TYPE_CHECKING:
    from rlfactory_search.retrievers import Retriever


def retriever_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options of both commands; `_with_retriever` makes the retriever from them."""
    for option in reversed(
        (
            click.option("--corpus", type=click.Path(path_type=Path), help='JSONL of {"id", "contents"}.'),
            click.option("--retriever", "kind", default="bm25", show_default=True, help="bm25, dense or http."),
            click.option("--model", help="dense: a sentence-transformers folder or hub id."),
            click.option("--device", default="cpu", show_default=True, help="dense: where the model runs."),
            click.option("--query-prefix", default="", help='dense: for e5 models "query: ".'),
            click.option("--passage-prefix", default="", help='dense: for e5 models "passage: ".'),
            click.option("--url", help="http: the server's address."),
        )
    ):
        command = option(command)
    return command


@click.group("search")
def search() -> None:
    """Retrieval: serve a corpus, or query it."""


@search.command()
@retriever_options
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", default=8000, show_default=True, help="0 takes a free port.")
def serve(host: str, port: int, **options: Any) -> None:
    """Serve a corpus with Search-R1's /retrieve API, until Ctrl-C."""
    from rlfactory_search import server

    def started(url: str) -> None:
        click.echo(f"Serving on {url} (Ctrl-C stops)")

    try:
        asyncio.run(_with_retriever(options, lambda retriever: server.serve(retriever, host, port, started)))
    except KeyboardInterrupt:
        click.echo("Stopped.")


@search.command()
@retriever_options
@click.option("-k", default=3, show_default=True, type=click.IntRange(min=1), help="How many passages.")
@click.argument("text")
def query(text: str, k: int, **options: Any) -> None:
    """Show the best passages for TEXT."""

    async def show(retriever: Retriever) -> None:
        (hits,) = await retriever.search([text], k)
        for hit in hits:
            title, _, passage = printable(hit.contents).partition("\n")
            click.echo(
                f"{hit.score:8.3f}  {click.style(title, bold=True)}  (id {printable(hit.id)})\n          {passage}"
            )
        if not hits:
            click.echo("Nothing found.")

    asyncio.run(_with_retriever(options, show))


async def _with_retriever(options: dict[str, Any], use: Callable[[Retriever], Awaitable[None]]) -> None:
    from rlfactory_search.corpus import FileCorpus
    from rlfactory_search.retrievers import make_retriever

    path = options.pop("corpus")
    retriever = make_retriever(corpus=FileCorpus(path) if path else None, progress=_show_progress, **options)
    await retriever.open()
    try:
        await use(retriever)
    finally:
        await retriever.close()


def _show_progress(done: int, total: int) -> None:
    click.echo(f"\rIndexing {done:,} of {total:,}", nl=done == total, err=True)
