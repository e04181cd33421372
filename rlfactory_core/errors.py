"""Every error that rlfactory raises on purpose, under one root.

Each class is also the standard-library error that a caller without knowledge of rlfactory would expect, so
``except ValueError`` keeps working. A message says what was wrong, what was found, what was expected and what to do.
The command line shows `RlfactoryError`s without a traceback and exits with `exit_code`; anything else is a bug of ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
    "ToolUnavailableError",
    "TrainingError",
    "UsageError",
    "VerifierError",
    "nearest",
]


class RlfactoryError(Exception):
    """The root. ``exit_code`` is what the command line exits with: 2 for what the user can mend, 1 for the rest."""

    exit_code = 1


class UsageError(RlfactoryError, ValueError):
    """The user asked for something that cannot be: a bad option, an unknown name, a missing file."""

    exit_code = 2


class ConfigError(UsageError):
    """A configuration key or value that does not fit the schema."""


class DataError(UsageError):
    """Data that cannot be read as samples or as a corpus."""


class PluginError(UsageError, ImportError):
    """A plugin that cannot be found, chosen or loaded."""


class PluginConflictError(PluginError):
    """Two distributions give the same name."""


class PluginVersionError(PluginError):
    """A plugin that speaks another version of the plugin API."""


class MissingExtraError(UsageError, ImportError):
    """An optional package is needed and not installed; the message holds the pip command."""


class InstallError(RlfactoryError, RuntimeError):
    """pip is absent, or could not install what was asked of it."""


class ChatFormatError(UsageError):
    """No chat format is known for a model, or one does not do what the model's own template does."""


class ModelError(UsageError):
    """A model that cannot be loaded or trained by the chosen engine."""


class BackendError(RlfactoryError, ConnectionError):
    """A service that a run needs (retriever, judge, endpoint) does not answer.

    At start-up it ends the run; from a model's server in mid-run it masks the trajectory.

    Args:
        status: of HTTP, where the service answered with a refusal.
        retry_after_s: for so many seconds the service wants to be left alone; 0 where it does not say.
    """

    exit_code = 2

    def __init__(self, *args: object, status: int | None = None, retry_after_s: float = 0.0) -> None:
        super().__init__(*args)
        self.status, self.retry_after_s = status, retry_after_s


class CheckpointError(RlfactoryError, OSError):
    """A checkpoint that cannot be written or read."""

    exit_code = 2


class DeadlineError(RlfactoryError, TimeoutError):
    """A task, played without an engine, did not end what it was asked for in time."""


class TrainingError(RlfactoryError, RuntimeError):
    """Training cannot go on, for example after too many skipped steps in a row."""


class RunStopped(RlfactoryError):  # noqa: N818 - nothing went wrong
    """The user, or a part of the run, stopped it; what was done is saved, and the message says how to go on."""

    exit_code = 130


class ToolError(RlfactoryError):
    """Raised *by a tool* to say no: its text goes to the model as the call's result (fault kind ``tool``)."""


class ToolArgumentsError(ToolError, ValueError):
    """Raised *by a tool* over arguments that fit its JSON schema and are wrong all the same (fault kind ``policy``)."""


class ToolUnavailableError(RlfactoryError, ConnectionError):
    """Raised by a tool whose backend is down: an infra fault, the trajectory is masked."""


class VerifierError(RlfactoryError):
    """Raised by a verifier or scorer that could not find out: the trajectory is masked, never scored 0.

    Args:
        counts: of what was done in vain, such as requests; as `Score.counts`.
    """

    def __init__(self, *args: object, counts: Mapping[str, float] | None = None) -> None:
        super().__init__(*args)
        self.counts: Mapping[str, float] = dict(counts or {})


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of an error message about an unknown name: the closest known names, or all of them.

    Returns text such as ``"Did you mean 'lr'?"``; never empty.
    """
    names = sorted(set(known))
    close = get_close_matches(name, names, n=3, cutoff=0.6)
    if close:
        return "Did you mean " + " or ".join(repr(item) for item in close) + "?"
    return "Known: " + (", ".join(names) if names else "none") + "."
