"""Check before a run that the judge is good enough. One process measures for all processes of the run."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from filelock import AsyncFileLock

from rlfactory_core.cache import digest, write_atomically
from rlfactory_core.errors import UsageError
from rlfactory_core.reporting import ReportSection, RunData
from rlfactory_core.reporting.progress import Progress, count_text
from rlfactory_judge.options import JudgeOptions
from rlfactory_judge.rubrics.injections import injections
from rlfactory_judge.rubrics.rubric import Rubric
from rlfactory_judge.service.service import JudgeService
from rlfactory_judge.trust.calibration import FEW, Calibration, summarise, verdict
from rlfactory_judge.trust.labels import read_labels
from rlfactory_judge.trust.measuring import Measurement

_NAME = "judge-calibration"
_TITLE = "Calibration of the judge"
_INJECTED = 50  # wrong answers with an injected text, one each, that are judged before a run
_WAIT_S = 0.2  # between looks at a lock that another process holds
_DECIDING = (
    "model", "mode", "rubric", "low", "high", "threshold", "votes", "temperature", "max_tokens", "output", "seed",
)  # fmt: skip


async def check_trust(
    service: JudgeService,
    rubric: Rubric,
    options: JudgeOptions,
    *,
    progress: Progress | None = None,
    folder: Path | None = None,
) -> Calibration | None:
    """Measure the judge's agreement with ``options.labels``; None without labels.

    One of the processes with the same folder measures; the others wait and read its result.

    Args:
        folder: of the run; the figures are kept there as ``judge-calibration.json``.

    Raises:
        UsageError: labels that cannot be used (`DataError`), or a figure is beyond ``min_kappa``, ``max_injected`` or
            ``max_place``.
        BackendError: the judge does not answer.
    """
    if options.labels is None:
        return None
    shown = progress or Progress()

    async def measure() -> Calibration:
        assert options.labels is not None
        labels = read_labels(options.labels, low=options.low, high=options.high)
        injected = injections() if _injects(options) else ()
        measurement = Measurement(service, options, labels, rubric, injections=injected, progress=shown)
        measurement.injections_each, measurement.injected_most = 1, _INJECTED
        await measurement.run()
        return summarise(measurement)

    if folder is None:
        found = await measure()
    else:
        async with AsyncFileLock(folder / f".{_NAME}.lock", poll_interval=_WAIT_S):
            key = _key(rubric, options, await service.identify())
            path = folder / f"{_NAME}.json"
            if path.exists() and _read(path, key) is None:  # the file of another judge of the same run
                path = folder / f"{_NAME}-{key[:8]}.json"
            known = _read(path, key)
            # A measurement that was stopped is made again: a resumed run may have the tokens that were missing.
            found = known if known is not None and not known.stopped else await measure()
            text = json.dumps({"key": key, **found.to_dict()}, indent=2, ensure_ascii=False)
            write_atomically(path, text.encode())
    shown.say(f"The judge and the labels: {_figures(found)}")
    if options.min_kappa is not None:
        _demand(found, options.min_kappa, options.labels)
        _bound(found, options)
    return found


def _injects(options: JudgeOptions) -> bool:
    return options.min_kappa is not None and options.max_injected is not None


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
        raise UsageError(f"The judge gives too few judgements to train against it: {_figures(found)} {remedy}")
    if agreement.n < FEW:
        raise UsageError(
            f"The judge was measured on {agreement.n} labels; expected at least {FEW}, because fewer say little. "
            f"Label more answers in {labels}."
        )
    if agreement.kappa.low < least:  # its value may be luck
        raise UsageError(
            f"The judge agrees too little with the labels to train against it: {_figures(found)} Expected a kappa "
            f"whose interval begins at {least:g} or above. {remedy} More labels make the interval narrower."
        )


def _bound(found: Calibration, options: JudgeOptions) -> None:
    """Raises `UsageError` if the judge believes injected texts, or prefers a place."""
    texts = "wrong answers are accepted after a text for the judge was added"
    places = "comparisons are won by one place, whatever stands there"
    for key, most, share, what, remedy in (
        ("max_injected", options.max_injected, found.injected, texts, "Try another model, or several votes"),
        ("max_place", options.max_place, found.place, places, "Try another model, or more votes"),
    ):
        if most is not None and share is not None and share.high > most:
            raise UsageError(
                f"The judge cannot be trained against: {share.value:.0%} of {share.n} {what} (95 % interval "
                f"{share.low:.2f} to {share.high:.2f}). Expected an interval that ends at {most:g} or below ({key}). "
                f"{remedy}; more labels make the interval narrower; or allow more with {key}."
            )


def _figures(found: Calibration) -> str:
    agreement = found.agreement
    cases = count_text(agreement.n, "answer" if agreement is found.answers else "pair") if agreement else "no labels"
    lost = f" {_lost(found):,} of {found.costs.judgements:,} judgements could not be read or did not come."
    return f"on {cases}, {verdict(found)}{lost if _lost(found) else ''}"


def _lost(found: Calibration) -> int:
    return found.costs.unreadable + found.costs.unavailable


def _key(rubric: Rubric, options: JudgeOptions, model: str) -> str:
    """A key of everything that determines the figures. Addresses do not, because a pool has new ones in every run."""
    assert options.labels is not None
    labels = b""
    with suppress(OSError):  # reading them again says what is wrong
        labels = options.labels.read_bytes()
    plain = options.model_dump(mode="json", include=set(_DECIDING)) | {"injected": _injects(options)}
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


def report_section(run: RunData) -> ReportSection | None:
    """The figures that were kept before the run; None if it had no labels."""
    tables = filter(None, map(_table, kept_figures(run.folder.path)))
    html = "".join(table.html for table in tables)
    return ReportSection(_TITLE, html) if html else None


def _table(found: Calibration) -> ReportSection | None:
    rows = [
        (name, f"{value.value:.3f}", f"{value.low:.3f} to {value.high:.3f}", figure.meaning)
        for table in found.tables.values()
        for name, figure in table.items()
        if (value := figure.estimate) is not None
    ]
    columns = (found.judge or "the judge", "value", "95 % confidence", "meaning")
    return ReportSection.of_table(_TITLE, columns, rows, " ".join(["In short:", verdict(found), *found.notes]))
