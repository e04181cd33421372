"""``rlfactory pioneer``."""

from __future__ import annotations

import click

from rlfactory_core import UsageError
from rlfactory_pioneer.task import SIDES


@click.group()
def pioneer() -> None:
    """Coins: what sides they have."""


@pioneer.command()
@click.argument("side")
def other(side: str) -> None:
    """The side that SIDE is not."""
    if side not in SIDES:
        raise UsageError(f"A coin has no side '{side}'. Expected one of: {', '.join(SIDES)}.")
    click.echo(next(item for item in SIDES if item != side))
