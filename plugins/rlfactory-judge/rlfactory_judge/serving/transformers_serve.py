"""``transformers serve`` as a separate process, with a fifth less work at the start.

Run as ``python -m rlfactory_judge.serving.transformers_serve MODEL OPTION…``. transformers' own command also
imports its other subcommands, and the garbage collector runs thousands of times while modules are imported.
"""

from __future__ import annotations

import gc

_OBJECTS = 50_000  # new objects before a garbage collection


def main() -> None:
    gc.set_threshold(_OBJECTS)
    import typer
    from transformers.cli.serve import Serve

    app = typer.Typer()
    app.command()(Serve)
    app()


if __name__ == "__main__":
    main()
