"""``transformers serve`` as a process of its own, at four fifths of the work that its start takes otherwise.

Run as ``python -m rlfactory_judge.serving.transformers_serve MODEL OPTION…``. transformers' own command imports those
beside ``serve``, too; and garbage is looked for thousands of times while some thousand modules are imported that stay.
"""

from __future__ import annotations

import gc

_OBJECTS = 50_000  # new ones, before garbage is looked for


def main() -> None:
    gc.set_threshold(_OBJECTS)
    import typer
    from transformers.cli.serve import Serve

    app = typer.Typer()
    app.command()(Serve)
    app()


if __name__ == "__main__":
    main()
