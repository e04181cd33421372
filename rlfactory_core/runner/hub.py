"""Pushes a model's folder to the Hugging Face hub (or to the server that HF_ENDPOINT names)."""

from __future__ import annotations

from pathlib import Path

from rlfactory_core.errors import BackendError, MissingExtraError, UsageError

_LOGIN = "Log in with `hf auth login`, or set HF_TOKEN to a token that may write."


def push(folder: Path, repo: str, *, private: bool) -> str:
    """Make the repository if it is not there, upload all files, and look whether they are there.

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
