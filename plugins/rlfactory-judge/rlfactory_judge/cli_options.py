"""Options that several commands share: where the judge is."""

from __future__ import annotations

from pathlib import Path

import click

URL = click.option(
    "--url", multiple=True, metavar="URL", help="The judge's address, http://HOST:PORT/v1; may be repeated."
)
ENDPOINTS = click.option(
    "--endpoints",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="An endpoint file of `rlfactory judge serve`. Default: its usual place.",
)
MODEL = click.option("--model", metavar="ID", help="The served model's id. Default: the only one that is served.")
