"""Tests a task's reward with right and wrong answers, and counts how many it judges wrongly."""

from rlfactory_devkit.redteam.mutation import Case, Material, Mutation
from rlfactory_devkit.redteam.result import Attempt, RedTeamResult, Tally
from rlfactory_devkit.redteam.running import run_redteam

__all__ = ["Attempt", "Case", "Material", "Mutation", "RedTeamResult", "Tally", "run_redteam"]
