"""``rlfactory export``: a run's model for other programs."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from rlfactory_core.cli.options import JSON, needs_local
from rlfactory_core.cli.output import echo, echo_json

_NEXT = {
    "folder": "serve it     vllm serve {}",
    "adapter": "serve it     vllm serve BASE --enable-lora --lora-modules mine={}",
    "gguf": "serve it     llama-server --jinja -m {}",
    "ollama": "serve it     cd {} && ollama create mine -f Modelfile && ollama run mine",
}


@click.command()
@click.argument("run")
@click.option(
    "--to", required=True, type=click.Choice(["folder", "adapter", "gguf", "ollama", "hub"]), help="What is made."
)
@click.option("--out", type=click.Path(path_type=Path), help="The folder or file to write. Default: in RUN/exports.")
@click.option("--checkpoint", default="", metavar="N|best|latest", help="Default: the best one if one is marked.")
@click.option(
    "--quantize",
    "quantization",
    default="",
    type=click.Choice(["", "f32", "f16", "bf16", "q8_0"]),
    metavar="f32|f16|bf16|q8_0",
    help="Of the matrices in a GGUF file. Default: f16.",
)
@click.option("--repo", default="", metavar="ORGANISATION/NAME", help="hub: the repository, which is made if need be.")
@click.option("--public", is_flag=True, help="hub: a new repository is public. Default: private.")
@click.option("--device", default="auto", help="auto, cpu, cuda or cuda:N, for the proof.")
@JSON
def export(as_json: bool, **options: Any) -> None:
    """Write the model of RUN (a folder, or a name under runs/) for other programs.

    folder: a Hugging Face folder with merged weights. adapter: PEFT's, of a run with train.lora. gguf: for llama.cpp.
    ollama: a GGUF file and a Modelfile. hub: the folder, pushed to the Hugging Face hub. The copy is loaded again, and
    has to give the run's greedy answers to prompts of the run; otherwise nothing is written.
    """
    from rlfactory_core.cli.ui.progress import make_progress
    from rlfactory_core.runner.exporting import Export, export_run

    with needs_local(), make_progress(sys.stderr if as_json else sys.stdout) as progress:
        done = export_run(Export(**options), progress)
    if as_json:
        echo_json({**asdict(done), "checkpoint": str(done.checkpoint)})
        return
    echo(f"{done.proof}\n{options['to']:<12} {done.place}")
    if done.warning:
        echo(done.warning)
    if following := _NEXT.get(options["to"]):
        echo(following.format(done.place))
