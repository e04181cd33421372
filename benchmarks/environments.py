"""Steps a second through the OpenEnv client of the task ``openenv``, beside OpenEnv's own client.

    python benchmarks/environments.py      # writes benchmarks/results/environments.md

Both play 64 sessions at once against one server of OpenEnv's echo environment, in a process of its own, in turns. It
needs OpenEnv: ``nox -s benchmarks -- environments`` has it.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from machine import describe, finish, publish, sized
from openenv.core import GenericEnvClient
from rlfactory_environments.openenv.servers import Servers, Waiting

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from openenv_echo import ECHO, make_echo, serving

RESULTS = Path(__file__).parent / "results" / "environments.md"
SESSIONS = sized(64, 2)
STEPS = sized(50, 2)  # in each session
ROUNDS = sized(5, 1)  # of each client
ACTION = {"message": "hello"}


async def timed(steps: list[Callable[[], Awaitable[object]]]) -> tuple[float, float]:
    """Steps a second, and milliseconds of this process's CPU for a step, with all sessions at once."""

    async def play(step: Callable[[], Awaitable[object]]) -> None:
        for _ in range(STEPS):
            await step()

    started, before = time.perf_counter(), time.process_time()
    await asyncio.gather(*map(play, steps))
    count = len(steps) * STEPS
    return count / (time.perf_counter() - started), 1000 * (time.process_time() - before) / count


async def ours(url: str) -> tuple[float, float]:
    servers = Servers([url], most=SESSIONS, waiting=Waiting())
    async with AsyncExitStack() as leased:
        leases = (servers.lease({"seed": seed}) for seed in range(1, SESSIONS + 1))
        begun = [await leased.enter_async_context(lease) for lease in leases]
        return await timed([lambda session=session: session.step(ACTION) for session, _ in begun])


async def openenvs(url: str) -> tuple[float, float]:
    clients = [GenericEnvClient(base_url=url) for _ in range(SESSIONS)]
    try:
        for seed, client in enumerate(clients, 1):
            await client.connect()
            await client.reset(seed=seed)
        return await timed([lambda client=each: client.step(ACTION) for each in clients])
    finally:
        for client in clients:
            await client.close()


def report(found: dict[str, list[tuple[float, float]]]) -> str:
    rows = ["| client | steps a second, median | least to most | CPU a step |", "|---|---|---|---|"]
    for name, each in found.items():
        rates = [rate for rate, _ in each]
        cpu = median(cpu for _, cpu in each)
        rows.append(f"| {name} | {median(rates):,.0f} | {min(rates):,.0f} to {max(rates):,.0f} | {cpu:.2f} ms |")
    return (
        f"# Clients of OpenEnv, {SESSIONS} sessions at once\n\n"
        f"{STEPS} steps in each session of one server's echo environment; {ROUNDS} times each client, in turns. The "
        "server has a\nprocess of its own. CPU is of the client's process.\n\n"
        + "\n".join(rows)
        + "\n\nMade by `python benchmarks/environments.py`, beside other work, on "
        f"{describe('openenv', 'websockets', 'uvicorn')}.\n"
    )


def main() -> None:
    found: dict[str, list[tuple[float, float]]] = {"rlfactory's": [], "OpenEnv's own": []}
    with TemporaryDirectory() as folder, serving("-c", ECHO, "0", place=make_echo(Path(folder), SESSIONS)) as url:
        for _ in range(ROUNDS):
            found["rlfactory's"].append(asyncio.run(ours(url)))
            found["OpenEnv's own"].append(asyncio.run(openenvs(url)))
    publish(RESULTS, report(found))
    finish(held=True)


if __name__ == "__main__":
    main()
