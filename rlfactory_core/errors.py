"""All errors that rlfactory raises on purpose; `RlfactoryError` is their base class.

Each class is also a standard-library error, so that ``except ValueError`` works for callers that do not know
rlfactory. A message says what is wrong, what was found, what is expected and what to do. The command line shows a
`RlfactoryError` without a traceback and exits with `exit_code`; any other error is a bug in rlfactory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

__all__ = [
    "BackendError",
    "ChatFormatError",
    "CheckpointError",
    "ConfigError",
    "DataError",
    "DeadlineError",
    "InstallError",
    "MissingExtraError",
    "ModelError",
    "PluginConflictError",
    "PluginError",
    "PluginVersionError",
    "RlfactoryError",
    "RunStopped",
    "ToolArgumentsError",
    "ToolError",
    "ToolFailedError",
    "ToolUnavailableError",
    "TrainingError",
    "UsageError",
    "VerifierError",
    "nearest",
]


class RlfactoryError(Exception):
    """The base class. The command line exits with ``exit_code``: 2 for an error that the user can correct, else 1."""

    exit_code = 1


class UsageError(RlfactoryError, ValueError):
    """The user's request is wrong: a bad option, an unknown name, a missing file."""

    exit_code = 2


class ConfigError(UsageError):
    """A configuration key or value that does not fit the schema.

    Args:
        unknown: the keys that no section has.
    """

    def __init__(self, *args: object, unknown: Sequence[str] = ()) -> None:
        super().__init__(*args)
        self.unknown = tuple(unknown)


class DataError(UsageError):
    """Data that cannot be read as samples or as a corpus."""


class PluginError(UsageError, ImportError):
    """A plugin that cannot be found, chosen or loaded."""


class PluginConflictError(PluginError):
    """Two distributions register the same name."""


class PluginVersionError(PluginError):
    """A plugin for another version of the plugin API."""


class MissingExtraError(UsageError, ImportError):
    """An optional package is needed and not installed; the message holds the pip command."""


class InstallError(RlfactoryError, RuntimeError):
    """pip is missing, or could not install a package."""


class ChatFormatError(UsageError):
    """No chat format fits a model, or a format's ids differ from those of the model's chat template."""


class ModelError(UsageError):
    """A model that cannot be loaded or trained by the chosen engine."""


class BackendError(RlfactoryError, ConnectionError):
    """A service that a run needs, such as a retriever or a judge, does not answer.

    At start-up the error ends the run. Later, an error of a model's server masks the trajectory.

    Args:
        status: the HTTP status, if the service refused the request.
        retry_after_s: the seconds after which the service accepts another request; 0 if it does not say.
    """

    exit_code = 2

    def __init__(self, *args: object, status: int | None = None, retry_after_s: float = 0.0) -> None:
        super().__init__(*args)
        self.status, self.retry_after_s = status, retry_after_s


class CheckpointError(RlfactoryError, OSError):
    """A checkpoint that cannot be written or read."""

    exit_code = 2


class DeadlineError(RlfactoryError, TimeoutError):
    """A task that is played by `TaskBench` did not finish an operation in time."""


class TrainingError(RlfactoryError, RuntimeError):
    """Training cannot go on, for example after too many skipped steps in a row."""


class RunStopped(RlfactoryError):  # noqa: N818 - nothing went wrong
    """The user or a part of the run stopped it. Its results are saved, and the message says how to resume."""

    exit_code = 130


class ToolError(RlfactoryError):
    """Raised *by a tool* to refuse a call: the text goes to the model as the result (fault kind ``tool``)."""


class ToolArgumentsError(ToolError, ValueError):
    """Raised *by a tool* for arguments that fit its JSON schema but are wrong (fault kind ``policy``)."""


class ToolFailedError(RlfactoryError, RuntimeError):
    """Raised by a tool that has failed (fault kind ``tool``): the model is not shown the text, the user is."""


class ToolUnavailableError(RlfactoryError, ConnectionError):
    """Raised by a tool whose backend is down: an infra fault, the trajectory is masked."""


class VerifierError(RlfactoryError):
    """Raised by a verifier or scorer that cannot decide: the trajectory is masked and never scored 0.

    Args:
        counts: such as the number of requests so far; see `Score.counts`.
    """

    def __init__(self, *args: object, counts: Mapping[str, float] | None = None) -> None:
        super().__init__(*args)
        self.counts: Mapping[str, float] = dict(counts or {})


def close_names(name: str, known: Iterable[str]) -> list[str]:
    """The names that an unknown one may be a misspelling of, the nearest first."""
    return get_close_matches(name, list(known), n=3, cutoff=0.6)


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of an error message about an unknown name: ``"Did you mean 'lr'?"``, or all known names."""
    names = sorted(set(known))
    if close := close_names(name, names):
        return "Did you mean " + " or ".join(repr(item) for item in close) + "?"
    return "Known: " + (", ".join(names) if names else "none") + "."
