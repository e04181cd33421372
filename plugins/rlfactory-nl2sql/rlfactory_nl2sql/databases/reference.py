"""A reference to a database, made from a path or URL, and a connection made from it.

It has no secrets, so processes and people can share it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Literal
from urllib.parse import quote, unquote, urlsplit

from rlfactory_core.errors import MissingExtraError, UsageError, nearest
from rlfactory_nl2sql.connection import Connection, QueryLimits

Kind = Literal["sqlite", "postgres", "mysql"]

_SCHEMES: dict[str, Kind] = {"postgresql": "postgres", "postgres": "postgres", "mysql": "mysql", "mariadb": "mysql"}
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SECRETS = re.compile(r"(?i)(://[^:@]*:)(.*)(?=@)|(\b(?:password|passwd|sslpassword|ssl_key_password)=)([^&]*)")
_FORMS = "the path of a SQLite file, or a URL such as postgresql://user:${PGPASSWORD}@host/name"


@dataclass(frozen=True, slots=True)
class DatabaseRef:
    """One database. Made by `parse_reference`."""

    kind: Kind  # also its name as a dialect of sqlglot
    location: str  # the file's absolute path, or a URL with ${NAME} where its secrets belong; it can be shown

    @property
    def is_file(self) -> bool:
        return self.kind == "sqlite"

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables that a server's URL names."""
        return () if self.is_file else tuple(_VARIABLE.findall(self.location))


def parse_reference(text: str | Path) -> DatabaseRef:
    """The database that ``--db PATH|URL`` or a sample's ``metadata["database"]`` names.

    In a server's URL, ``${NAME}`` stands for an environment variable, which is read when a connection is opened.

    Raises:
        UsageError: there is no such file, it is not a database, or the URL cannot be used; the message says what to do.
    """
    given = str(text)
    match = _SCHEME.match(given)
    if match is None:
        return _file(Path(given).expanduser())
    shown, scheme = _without_password(given), match[1].lower().partition("+")[0]
    if scheme not in _SCHEMES:
        raise UsageError(
            f"{shown!r} starts with {match[1]!r}, which is no kind of database known here. "
            f"{nearest(scheme, _SCHEMES)} Expected {_FORMS}."
        )
    try:
        urlsplit(given)
    except ValueError as error:
        raise UsageError(f"{shown!r} is no URL ({error}). Expected {_FORMS}.") from None
    secrets = (match[2] or match[4] for match in _SECRETS.finditer(unquote(given)))
    if any(secret and not _VARIABLE.fullmatch(secret) for secret in secrets):
        raise UsageError(
            f"The URL {shown!r} holds a password, which would end up in logs and on disk. Put the password into an "
            "environment variable and write its name in the URL: postgresql://user:${PGPASSWORD}@host/name."
        )
    return DatabaseRef(_SCHEMES[scheme], given)


def reference_in_data(name: str, allowed: Sequence[str] = ()) -> DatabaseRef:
    """The database that a row of data names: a file, or one of the ``allowed`` URLs, which the user wrote.

    A row comes from whoever made the data. Its URL would decide where passwords from the environment are sent.

    Raises:
        UsageError: it is another URL; otherwise as `parse_reference`.
    """
    if "://" in name and name not in allowed:
        shown = _without_password(name)
        raise UsageError(
            f"A row of the data names the database {shown!r}, but a row may name a URL only if you have allowed it. "
            "If you trust it, give it as --db URL for all rows, or list it in the task's option other_databases: "
            "task.other_databases='[URL]'."
        )
    return parse_reference(name)


def path_in_data(name: str, folder: Path, allowed: Sequence[str] = ()) -> str:
    """The path that a row means by ``name``, relative to the data's folder.

    Raises:
        UsageError: it is neither in that folder, links followed, nor in one of the ``allowed`` folders.
    """
    path = folder / name
    places = [folder, *(Path(each).expanduser() for each in allowed if "://" not in each)]
    if not any(path.resolve().is_relative_to(place.resolve()) for place in places):
        raise UsageError(
            f"A row of the data names the database {name!r}, which is outside of the data's folder {folder}. If you "
            f"trust it, allow its folder: task.other_databases='[{path.resolve().parent}]'."
        )
    return str(path)


def connection_url(ref: DatabaseRef) -> str:
    """The URL with the environment's values filled in. Use it at once and do not store it.

    Raises:
        UsageError: a variable that the URL names is not set.
    """
    place = ref.location.partition("?")[0]

    def value(match: re.Match[str]) -> str:
        found = os.environ.get(match[1])
        if found is None:
            raise UsageError(f"The database's URL needs the environment variable {match[1]}, which is not set. Set it.")
        in_host = place.rfind("@") < match.start() < len(place)
        return found if in_host else quote(found, safe="")

    return _VARIABLE.sub(value, ref.location)


def connect(ref: DatabaseRef, limits: QueryLimits) -> Connection:
    """A read-only connection. ``limits`` holds for the database engine while the connection is open.

    Raises:
        BackendError: the database does not answer, or cannot be read.
        MissingExtraError: its driver is not installed.
        UsageError: its URL needs an environment variable that is not set.
    """
    try:
        module = import_module(f"rlfactory_nl2sql.databases.{ref.kind}")
    except ModuleNotFoundError as error:
        extra = "postgresql" if ref.kind == "postgres" else ref.kind
        raise MissingExtraError(
            f"The database {ref.location} needs the package {error.name}, which is not installed. "
            f"Install it: python -m pip install 'rlfactory-nl2sql[{extra}]'"
        ) from error
    opened: Connection = module.open_database(ref, limits)
    return opened


def _file(path: Path) -> DatabaseRef:
    if path.is_dir():
        raise UsageError(
            f"{path} is a folder; expected {_FORMS}. A folder in the layout of Spider or BIRD "
            "(database/<id>/<id>.sqlite) goes with --data and its JSON file of questions, each of which names its own "
            "database."
        )
    try:
        with path.open("rb") as file:
            start = file.read(16)
    except OSError as error:
        raise UsageError(f"The database {path} cannot be read ({error.strerror}). Expected {_FORMS}.") from error
    if start == b"SQLite format 3\0":
        return DatabaseRef("sqlite", str(path.resolve()))
    found = f"it starts with {start[:12]!r}" if start else "it is empty"
    raise UsageError(f"{path} is no SQLite file: {found}. Expected {_FORMS}.")


def _without_password(url: str) -> str:
    return _SECRETS.sub(lambda match: f"{match[1] or match[3]}***", url)
