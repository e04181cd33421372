"""What the Hugging Face hub gets of an exported model: its card (README.md), and the push."""

from __future__ import annotations

from pathlib import Path

from rlfactory_core.errors import BackendError, MissingExtraError, UsageError
from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.reporting.run_data import headline
from rlfactory_core.settings import dump_yaml
from rlfactory_core.version import __version__

_LOGIN = "Log in with `hf auth login`, or set HF_TOKEN to a token that may write."
_KEPT = ("license", "license_name", "license_link", "language")  # of the start model's card


def push(folder: Path, repo: str, *, private: bool) -> str:
    """Make the repository if it is not there, upload all files, and look whether they are there.

    The environment's HF_ENDPOINT can name another server.

    Returns:
        The repository's address.

    Raises:
        UsageError: the name or the token is wrong, or the token may not write.
        BackendError: the hub does not answer, or has not all files.
    """
    try:
        from huggingface_hub import HfApi
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalTokenNotFoundError
    except ImportError as error:
        raise MissingExtraError("The hub needs huggingface_hub: pip install 'rlfactory-core[local]'") from error
    api = HfApi()
    try:
        address = api.create_repo(repo, private=private, exist_ok=True)
        api.upload_folder(repo_id=repo, folder_path=folder, commit_message="Model trained with rlfactory")
        there = set(api.list_repo_files(repo))
    except HFValidationError as error:
        raise UsageError(f"--repo {repo}: expected ORGANISATION/NAME. {str(error).splitlines()[0]}") from error
    except LocalTokenNotFoundError as error:
        raise UsageError(f"There is no token for the hub. {_LOGIN}") from error
    except HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else 0
        reason = (error.server_message or str(error)).strip().splitlines()[0]
        if status in (401, 403):
            raise UsageError(f"The hub refuses to write to {repo} (HTTP {status}: {reason}). {_LOGIN}") from error
        raise BackendError(f"The hub cannot take {repo} (HTTP {status}: {reason}). Try again later.") from error
    except Exception as error:  # the hub's client: its HTTP library, and so its errors, change with its releases
        reason = str(error).rstrip(".")
        raise BackendError(
            f"The hub at {api.endpoint} does not answer: {reason}. Export with --to folder, and upload that folder "
            f"from a machine with a network: hf upload {repo} FOLDER"
        ) from error
    if missing := {path.name for path in folder.iterdir()} - there:
        raise BackendError(f"The hub has not got {', '.join(sorted(missing))} of {repo}. Try again.")
    return str(address)


def model_card(run: RunFolder, checkpoint: Path) -> str:
    """The README.md of an exported model, with the metadata that the hub reads.

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
