"""Real database servers on loopback, for tests: PostgreSQL and MariaDB, as the system's packages install them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

PASSWORD = "loopback only"  # of the administrator and of every account that a test makes
_ACCOUNTS = ("postgres", "mysql", "nobody")  # neither server wants to run as root
_PARENT_DIED = 1  # PR_SET_PDEATHSIG
_STOP_S = 20


class NotInstalledError(Exception):
    """The server's programs are not on this machine; the message names the package."""


@dataclass(frozen=True)
class Server:
    """A running server and its administrator's account."""

    port: int
    admin: str
    host: str = "127.0.0.1"
    password: str = PASSWORD


@contextlib.contextmanager
def postgres_server() -> Iterator[Server]:
    """PostgreSQL in a new folder, which is gone at the end, and so is the server."""
    programs = _postgres_programs()
    with _folder() as folder:
        secret = folder / "password"
        secret.write_text(PASSWORD, encoding="utf-8")
        _hand_over(secret)
        data = folder / "data"
        _run(
            programs / "initdb", "--pgdata", data, "--username=admin", "--auth=scram-sha-256", f"--pwfile={secret}",
            "--encoding=UTF8", "--locale=C", "--no-sync",
        )  # fmt: skip
        port = _free_port()
        settings = {
            "listen_addresses": "127.0.0.1", "port": port, "unix_socket_directories": "", "fsync": "off",
            "shared_buffers": "16MB", "max_connections": 40, "log_statement": "none",
        }  # fmt: skip
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with _running([str(programs / "postgres"), "-D", str(data), *options], "ready to accept connections"):
            yield Server(port, "admin")


@contextlib.contextmanager
def mariadb_server() -> Iterator[Server]:
    """MariaDB in a new folder, which is gone at the end, and so is the server."""
    server, installer = _program("mariadbd"), _program("mariadb-install-db")
    with _folder() as folder:
        data, port = folder / "data", _free_port()
        _run(
            installer, "--no-defaults", f"--datadir={data}", f"--tmpdir={folder}",
            "--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve",
        )  # fmt: skip
        first = folder / "first.sql"
        account = "admin@'127.0.0.1'"
        first.write_text(  # a statement is a line
            f"CREATE USER {account} IDENTIFIED BY '{PASSWORD}';\nGRANT ALL ON *.* TO {account} WITH GRANT OPTION;\n",
            encoding="utf-8",
        )
        _hand_over(first)
        command = [
            str(server), "--no-defaults", f"--datadir={data}", f"--socket={folder}/socket", f"--pid-file={folder}/pid",
            f"--port={port}", "--bind-address=127.0.0.1", "--skip-name-resolve", f"--tmpdir={folder}",
            f"--init-file={first}",
            "--innodb-buffer-pool-size=16M", "--innodb-log-file-size=8M", "--innodb-flush-log-at-trx-commit=0",
            "--performance-schema=OFF", "--max-connections=40",
        ]  # fmt: skip
        with _running(command, "ready for connections"):
            yield Server(port, "admin")


def _postgres_programs() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    initdb = found[-1] if found else shutil.which("initdb")
    if initdb is None:
        raise NotInstalledError("PostgreSQL's server is not installed (Debian: apt-get install postgresql)")
    return Path(initdb).resolve().parent


def _program(name: str) -> Path:
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if found is None:
        raise NotInstalledError(f"{name} is not installed (Debian: apt-get install mariadb-server-core)")
    return Path(found)


def _account() -> pwd.struct_passwd | None:
    """Whom the server runs as; None: whoever runs the tests."""
    if os.geteuid() != 0:
        return None
    for name in _ACCOUNTS:
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise NotInstalledError(f"as root, one of the accounts {', '.join(_ACCOUNTS)} is needed to run the server")


def _hand_over(path: Path) -> None:
    if account := _account():
        os.chown(path, account.pw_uid, account.pw_gid)


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="rlfactory-server-"))  # not below pytest's, which only its owner may enter
    try:
        _hand_over(folder)
        yield folder
    finally:
        shutil.rmtree(folder)


def _run(*command: str | Path) -> None:
    account = _account()
    user = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []} if account else {}
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, timeout=120, cwd="/", check=False, **user
    )
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed with {done.returncode}:\n{done.stdout}{done.stderr}")


@contextlib.contextmanager
def _running(command: list[str], ready: str) -> Iterator[None]:
    account = _account()
    user = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []} if account else {}
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd="/",
        preexec_fn=_end_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509 - it starts no thread
        **user,
    )  # fmt: skip
    assert process.stderr is not None
    try:
        _await_line(process.stderr, ready, command[0])
        reader = threading.Thread(target=process.stderr.read, daemon=True)  # or the server stops at a full pipe
        reader.start()
        yield
    finally:
        process.send_signal(
            signal.SIGINT if "postgres" in command[0] else signal.SIGTERM
        )  # both: do not wait for clients
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stderr.close()


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PARENT_DIED, signal.SIGTERM)


def _await_line(log: IO[str], ready: str, program: str) -> None:
    said = []
    for line in log:
        said.append(line)
        if ready in line:
            return
    raise RuntimeError(f"{program} did not start:\n{''.join(said)}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
