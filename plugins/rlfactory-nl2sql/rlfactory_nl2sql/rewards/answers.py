"""The query that a model gives as its answer."""

from __future__ import annotations

import re

from rlfactory_core import Trajectory
from rlfactory_core.rewards import last_answer

NO_ANSWER = "no <answer>"
_FENCED = re.compile(r"```(?:\w*\n|sql\s)?(.*)```", re.DOTALL | re.IGNORECASE)


def predicted_sql(trajectory: Trajectory) -> str | None:
    """The content of the model's last ``<answer>``, without a code fence; None if there is none."""
    answer = last_answer(trajectory) or ""
    fenced = _FENCED.fullmatch(answer)
    return (fenced[1].strip() if fenced else answer) or None
