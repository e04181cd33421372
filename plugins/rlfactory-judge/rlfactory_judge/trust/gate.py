"""Check before a run that the judge is good enough. One process measures for all processes of the run."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from rlfactory_core.cache import digest
from rlfactory_core.errors import UsageError
from rlfactory_core.reporting.progress import NullProgress, StageState, seconds_text
from rlfactory_judge.options import JudgeOptions
from rlfactory_judge.rubrics.rubric import Rubric
from rlfactory_judge.service.service import JudgeService
from rlfactory_judge.trust.calibration import Calibration, calibrate, check_labels
from rlfactory_judge.trust.labels import read_labels

_NAME = "judge-calibration"
FEWEST_LABELS = 30
_WAIT_S = 0.2  # between looks at a lock that another process holds
_SPOKEN_S = 20.0  # between lines that say how far it is
_DECIDING = (
    "model", "mode", "rubric", "low", "high", "threshold", "votes", "temperature", "max_tokens", "output", "seed",
)  # fmt: skip

Say = Callable[[str], None]


async def check_trust(
    service: JudgeService,
    rubric: Rubric,
    options: JudgeOptions,
    *,
    say: Say | None = None,
    folder: Path | None = None,
) -> Calibration | None:
    """Measure the judge's agreement with ``options.labels``; None without labels.

    Of several processes with the same folder, one measures, and the others wait and read its result.

    Args:
        say: shows a line to the user, where this process has one.
        folder: of the run; the figures are kept there as ``judge-calibration.json``.

    Raises:
        UsageError: ``min_kappa`` without labels; labels that cannot be used (`DataError`); or kappa is below it.
        BackendError: the judge does not answer.
    """
    if options.labels is None:
        if options.min_kappa is not None:
            raise UsageError("The judge's min_kappa needs labelled answers to measure it on: labels=FILE.jsonl")
        return None
    progress = _LineProgress(say or (lambda _: None))
    if folder is None:
        found = await _measure(service, rubric, options, progress)
    else:
        async with _locked(folder / f".{_NAME}.lock"):
            found = await _found_or_measured(service, rubric, options, progress, folder)
    progress.say(f"The judge and the labels: {_figures(found)}")
    if options.min_kappa is not None:
        _demand(found, options.min_kappa, options.labels)
    return found


async def _found_or_measured(
    service: JudgeService, rubric: Rubric, options: JudgeOptions, progress: _LineProgress, folder: Path
) -> Calibration:
    key = _key(rubric, options, service.identity)
    path = folder / f"{_NAME}.json"
    if path.exists() and _read(path, key) is None:  # the file of another judge of the same run
        path = folder / f"{_NAME}-{key[:8]}.json"
    known = _read(path, key)
    if known is not None and not known.stopped:  # a resumed run may have the tokens that were missing
        return known
    found = await _measure(service, rubric, options, progress)
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_text(json.dumps({"key": key, **found.to_dict()}, indent=2, ensure_ascii=False), encoding="utf-8")
    os.replace(temporary, path)
    return found


async def _measure(
    service: JudgeService, rubric: Rubric, options: JudgeOptions, progress: _LineProgress
) -> Calibration:
    assert options.labels is not None
    labels = read_labels(options.labels, low=options.low, high=options.high)
    check_labels(labels, options)
    with progress, service.measured():
        return await calibrate(service, rubric, options, labels, progress, judge=service.describe())


def _demand(found: Calibration, least: float, labels: Path) -> None:
    """Raises `UsageError` with the figures and what to do."""
    agreement = found.agreement
    remedy = (
        f"`rlfactory judge calibrate --labels {labels}` shows where it fails. Try another model or rubric, "
        "several votes, or demand less with min_kappa."
    )
    if found.stopped:
        raise UsageError(f"The measurement of the judge is incomplete: {found.stopped}")
    if agreement is None or agreement.kappa is None:
        why = agreement.why_no_kappa if agreement is not None else "nothing was judged"
        raise UsageError(
            f"The judge's kappa on {labels} is unknown, because {why}. The run demands min_kappa={least:g}. "
            "Give labels of right and of wrong answers."
        )
    if 2 * _lost(found) > found.costs.judgements:  # in a run it would mask most attempts
        raise UsageError(f"The judge gives too few judgements to train against it. {_figures(found)}. {remedy}")
    if agreement.n < FEWEST_LABELS:
        raise UsageError(
            f"The judge was measured on {agreement.n} labels; expected at least {FEWEST_LABELS}, because fewer say "
            f"little. Label more answers in {labels}."
        )
    if agreement.kappa.low < least:  # its value may be luck
        raise UsageError(
            f"The judge agrees too little with the labels to train against it. {_figures(found)}, expected a kappa "
            f"whose interval begins at {least:g} or above. {remedy} More labels make the interval narrower."
        )


def _figures(found: Calibration) -> str:
    agreement = found.agreement
    if agreement is None or agreement.accuracy is None:
        return "nothing was judged"
    kappa = agreement.kappa
    shown = f"no kappa ({agreement.why_no_kappa})"
    if kappa is not None:
        shown = f"kappa {kappa.value:.2f} [{kappa.low:.2f}, {kappa.high:.2f}]"
    parts = [f"{shown} on {agreement.n:,} {'answers' if agreement is found.answers else 'pairs'}"]
    parts.append(f"agreement {agreement.accuracy.value:.2f}")
    confusion = agreement.confusion
    if confusion is not None:
        wrong = confusion.wrong_accepted + confusion.wrong_rejected
        right = confusion.right_accepted + confusion.right_rejected
        parts.append(f"{confusion.wrong_accepted:,} of {wrong:,} wrong answers accepted")
        parts.append(f"{confusion.right_rejected:,} of {right:,} right ones rejected")
    if lost := _lost(found):
        parts.append(f"{lost:,} of {found.costs.judgements:,} judgements could not be read or did not come")
    return ", ".join(parts)


def _lost(found: Calibration) -> int:
    return found.costs.unreadable + found.costs.unavailable


def _key(rubric: Rubric, options: JudgeOptions, model: str) -> str:
    """A key of everything that determines the figures. Addresses do not, because a pool has new ones in every run."""
    assert options.labels is not None
    try:
        labels = options.labels.read_bytes()
    except OSError:
        labels = b""  # reading them again says what is wrong
    plain = options.model_dump(mode="json", include=set(_DECIDING))
    return digest([labels, rubric.fingerprint, model, json.dumps(plain, sort_keys=True)])


def _read(path: Path, key: str | None = None) -> Calibration | None:
    """The saved figures; None if they are missing, damaged, or another judge's than that of the key."""
    try:
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return Calibration.from_dict(data) if data.pop("key", None) == key or key is None else None
    except (OSError, ValueError, AttributeError):
        return None


def kept_figures(folder: Path) -> list[Calibration]:
    """Those of a run's judges that were measured; damaged files are left out."""
    found = (_read(path) for path in sorted(folder.glob(f"{_NAME}*.json")))
    return [each for each in found if each is not None]


@asynccontextmanager
async def _locked(path: Path) -> AsyncIterator[None]:
    """A lock that one process holds at a time. It is released when the process ends, in whatever way."""
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(_WAIT_S)
            except OSError:  # a file system without locks: each process measures for itself
                break
        yield


class _LineProgress(NullProgress):
    """Progress as occasional lines, since the run's own display may be in another process."""

    def __init__(self, say: Say, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        self._say, self._last_s = say, clock()

    def say(self, text: str) -> None:
        self._last_s = self._clock()
        self._say(text)

    def on_stage(self, stage: StageState) -> None:
        self.say(f"Measuring the judge on labels: {stage.total:,} {stage.unit}s")

    def on_advance(self, stage: StageState) -> None:
        if self._clock() - self._last_s >= _SPOKEN_S:
            self.say(f"  {stage.count_text}, {seconds_text(stage.seconds)}")
