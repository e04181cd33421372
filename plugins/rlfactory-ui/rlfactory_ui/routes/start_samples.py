"""The data and the rewards of a new run: rows, the prompt that a sample becomes, the score of an answer."""

from __future__ import annotations

import json

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rlfactory_core.errors import UsageError
from rlfactory_ui.pages import part, site_of
from rlfactory_ui.routes.draft import sample_words
from rlfactory_ui.routes.forms import first, posted

SECONDS = 300.0  # a task may make its data first


async def data(request: Request) -> Response:
    """The first rows of a file."""
    path = first(await posted(request), "data")
    if not path:
        raise UsageError("Name a file with training data first.")
    outcome = await site_of(request).commands.run("samples", "rows", "--json", "--", path)
    found = outcome.json()
    rows = [json.dumps(row, ensure_ascii=False, indent=1) for row in found["rows"]]
    return part("rows.jinja", path=path, columns=found["columns"], rows=rows)


async def prompt(request: Request) -> Response:
    """A sample as the model gets it."""
    words = sample_words(await posted(request))
    outcome = await site_of(request).commands.run("samples", "prompt", *words, "--json", seconds=SECONDS)
    return part("prompt.jinja", prompt=outcome.json(), outcome=outcome)


async def score(request: Request) -> Response:
    """What each reward gives for an answer, or for the task's own solution."""
    form = await posted(request)
    answer = first(form, "answer")
    words = [*sample_words(form), *(["--answer", answer] if answer else [])]
    outcome = await site_of(request).commands.run("samples", "score", *words, "--json", seconds=SECONDS)
    return part("score.jinja", score=outcome.json(), outcome=outcome)


ROUTES = [
    Route("/new/data", data, methods=["POST"]),
    Route("/new/prompt", prompt, methods=["POST"]),
    Route("/new/score", score, methods=["POST"]),
]
