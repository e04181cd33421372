"""Damaged files and full disks: a run is resumed from what is whole, in words, or says what is missing."""

from __future__ import annotations

import random
import resource
import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from campaign_runs import STEPS, Reference, command, nothing_saved, resumed, trials
from runs import finish, metrics, start

pytestmark = pytest.mark.slow

Damage = Callable[[bytes, random.Random], bytes | None]
DAMAGES: dict[str, Damage] = {
    "cut off": lambda data, rng: data[: rng.randrange(max(1, len(data)))],
    "empty": lambda data, rng: b"",
    "gone": lambda data, rng: None,
    "zeros": lambda data, rng: bytes(len(data)),
    "another beginning": lambda data, rng: rng.randbytes(64) + data[64:],
    "a torn line more": lambda data, rng: data + b'{"torn": ',
}
FILES = (
    "checkpoints/step-6/model.safetensors",
    "checkpoints/resume/step-6.pt",
    "checkpoints/step-6/config.json",
    "checkpoints/step-6/tokenizer.json",
    "metrics.jsonl",
    "summary.json",
    "config.yaml",
    "plugins.lock.json",
    "data.lock.json",
    "trajectories/step-000003.jsonl",
    "report.html",
)


PAIRS = sorted(product(FILES, DAMAGES), key=lambda pair: random.Random(str(pair)).random())


@pytest.mark.parametrize("number", trials(len(PAIRS)))
def test_a_damaged_file_loses_no_more_than_itself(reference: Reference, tmp_path: Path, number: int) -> None:
    name, damage = PAIRS[number]
    run = tmp_path / "run"
    shutil.copytree(reference.folder, run, symlinks=True)
    file = run / name
    data = DAMAGES[damage](file.read_bytes(), random.Random(f"{name} {damage}"))
    file.unlink() if data is None else file.write_bytes(data)

    outcome = resumed(run, STEPS + 1)

    assert "Traceback" not in outcome.out, outcome.out
    if outcome.code == 0:
        steps = [row["step"] for row in metrics(run)]
        assert steps == sorted(set(steps))
        assert steps[-1] == STEPS + 1
    else:
        assert "error: " in outcome.out
        assert name.rpartition("/")[2] in outcome.out, outcome.out  # what is damaged is named
        assert (run / "checkpoints" / "step-5").exists()  # and nothing else is gone


@pytest.mark.parametrize("seed", trials(15))
def test_a_disk_that_fills_up_stops_the_run_and_it_goes_on_when_there_is_room(
    reference: Reference, tmp_path: Path, seed: int
) -> None:
    run = tmp_path / "run"
    largest = max(path.stat().st_size for path in reference.folder.rglob("*") if path.is_file())
    room = int(largest * random.Random(f"disk {seed}").uniform(0.05, 0.99))

    def fill() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    outcome = finish(start(*command(run), preexec_fn=fill))

    assert outcome.code not in (0, -25), outcome.out  # 25: SIGXFSZ
    assert "Traceback" not in outcome.out, outcome.out
    again = resumed(run)
    assert again.code == 0 or nothing_saved(again), again.out
    if again.code == 0:
        assert reference.is_equalled_by(run)
