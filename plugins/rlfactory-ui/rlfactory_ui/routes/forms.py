"""Reads a posted form."""

from __future__ import annotations

from urllib.parse import parse_qs

from starlette.requests import Request

from rlfactory_core.serving import read_body
from rlfactory_ui.access import MAX_BODY

FORM_S = 30.0  # in which a browser has to send a form
Form = dict[str, list[str]]


async def posted(request: Request) -> Form:
    """The fields of a form; several values of a name stay several."""
    text = (await read_body(request, MAX_BODY, FORM_S)).decode("utf-8", "replace")
    return parse_qs(text, keep_blank_values=True, max_num_fields=2000)


def first(form: Form, name: str) -> str:
    """A field's first value without blanks at its ends; empty if it is missing."""
    return form.get(name, [""])[0].strip()
