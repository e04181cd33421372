"""Make the reward ``judge`` from its options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from rlfactory_core.cache import digest
from rlfactory_core.errors import ConfigError
from rlfactory_core.settings import validate_section
from rlfactory_core.utils.display import without_credentials
from rlfactory_judge.options import JudgeOptions, Mode
from rlfactory_judge.rubrics.rubric import BUILT_IN, Rubric, default_rubric
from rlfactory_judge.scoring.group_judge import PairwiseJudge, RankingJudge
from rlfactory_judge.scoring.judge import Judge, OutcomeJudge, ProcessJudge
from rlfactory_judge.service.service import JudgeService

_PREFIX = "rewards.judge"
_JUDGES: dict[Mode, type[Judge]] = {
    "outcome": OutcomeJudge,
    "process": ProcessJudge,
    "ranking": RankingJudge,
    "pairwise": PairwiseJudge,
}


def make_judge(**options: Any) -> Judge:
    """The judge of a mode, from the fields of `JudgeOptions`. The default of ``rubric`` depends on the mode.

    Raises:
        ConfigError: an unknown option, an invalid value, options that contradict each other, or an unusable rubric.
    """
    checked = read_options(options)
    rubric = Rubric.load(checked.rubric, checked.mode)
    # Two judges of a run have separate token counts. A resumed run may have another budget.
    what = checked.model_dump_json(include={"mode", "rubric", "model", "url", "placement"})
    return _JUDGES[checked.mode](checked, rubric, JudgeService(checked, name=f"judge-{digest([what])[:8]}"))


def resolved_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The given options as they are saved, with absolute paths of files; raises as `make_judge`."""
    settled = validate_section(JudgeOptions, options, prefix=_PREFIX).model_dump(mode="json", exclude_unset=True)
    file = Path(settled.get("rubric", "")).expanduser()
    if settled.get("rubric") not in BUILT_IN and file.is_file():
        settled["rubric"] = str(file.absolute())
    return settled


def read_options(options: dict[str, Any]) -> JudgeOptions:
    """The checked options, with the mode's rubric as default; raises as `make_judge`."""
    checked = validate_section(JudgeOptions, options, prefix=_PREFIX)
    if "rubric" not in options:
        checked = checked.model_copy(update={"rubric": default_rubric(checked.mode)})
    if problem := next(_problems(checked), None):
        raise ConfigError(f"{_PREFIX}.{problem}")
    return checked


def _problems(options: JudgeOptions) -> Iterator[str]:
    """What is wrong with the options, each beginning with an option's name."""
    if not options.low < options.high:
        yield f"low: got {options.low:g}, expected less than high, which is {options.high:g}."
    if not isfinite(options.high - options.low):
        yield f"low is {options.low:g} and high {options.high:g}: expected a finite scale, such as 0 to 10."
    if options.votes > 1 and options.temperature == 0.0 and options.mode != "ranking":
        yield (
            f"votes is {options.votes} with a temperature of 0, and equal questions then have equal answers. Leave "
            "temperature out (it is 0.7 with several votes), or set votes to 1."
        )
    if options.token_budget is not None and options.token_budget < options.max_tokens:
        yield (
            f"token_budget is {options.token_budget}, less than the {options.max_tokens} tokens of max_tokens that one "
            "reply may have. It is for the whole run: set it to what a run may cost."
        )
    if options.min_kappa is not None and options.labels is None:
        yield (
            f"min_kappa is {options.min_kappa:g}, but there are no labels to measure it on. Give labelled examples: "
            "labels: labels.jsonl"
        )
    if options.placement == "pool":
        if options.url is not None:
            yield "url names a server, and placement is 'pool', in which engine=verl starts its own. Leave one out."
        if options.model is None:
            yield "placement is 'pool' and needs a model to serve: model: PATH_OR_HUB_ID"
        if options.gpus % options.tensor_parallel:
            yield f"gpus is {options.gpus}: expected a multiple of tensor_parallel, {options.tensor_parallel}."
        return
    for name in sorted({"gpus", "tensor_parallel"} & options.model_fields_set):
        yield f"{name} is for placement: pool, in which engine=verl serves the judge. Your server has its own options."
    if options.url is not None and (shown := without_credentials(options.url)) != options.url:
        yield (
            f"url: the address {shown} has a user and a password, which the run would save. Put the key into an "
            "environment variable, and name it: api_key_env: JUDGE_KEY"
        )
