"""The README.md of an exported model, with the metadata that the hub reads."""

from __future__ import annotations

from pathlib import Path

from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.reporting.run_data import headline
from rlfactory_core.settings import dump_yaml
from rlfactory_core.version import __version__

_KEPT = ("license", "license_name", "license_link", "language")  # of the start model's card


def model_card(run: RunFolder, checkpoint: Path) -> str:
    """
    Args:
        checkpoint: the model's folder; the README.md in it is the start model's, whose licence stays.
    """
    config, summary = run.read_config(), run.read_summary()
    start, train, task = config.get("model"), config.get("train") or {}, Path(config["plugin"]).name
    before = _metadata(checkpoint / "README.md")
    data = {key: before[key] for key in _KEPT if key in before}
    if start and not Path(start).is_absolute():
        data["base_model"] = start
    data |= {"library_name": "transformers", "pipeline_tag": "text-generation", "tags": ["rlfactory", "tool-use"]}
    name = "A tiny model of the task's own" if not start else start if "base_model" in data else Path(start).name
    steps = checkpoint.name.removeprefix("step-")
    return (
        f"---\n{dump_yaml(data)}---\n\n# {run.name}\n\n"
        f"{name}, trained on the task `{task}` by rlfactory {__version__} "
        f"(loss `{train.get('loss', 'ppo')}`, {steps} steps, seed {config.get('seed', 0)}).\n\n"
        f"{headline(summary, 0)}\n\n"
        "It was trained with the task's tools: give it their schemas, as in its training.\n"
    )


def _metadata(card: Path) -> dict[str, object]:
    """What stands between the lines ``---`` at its beginning; empty if there is no such card."""
    try:
        text = card.read_text(encoding="utf-8")
    except OSError:
        return {}
    begin, _, rest = text.partition("---\n")
    if begin.strip() or "\n---" not in rest:
        return {}
    import yaml

    try:
        found = yaml.safe_load(rest.partition("\n---")[0])
    except yaml.YAMLError:
        return {}
    return found if isinstance(found, dict) else {}
