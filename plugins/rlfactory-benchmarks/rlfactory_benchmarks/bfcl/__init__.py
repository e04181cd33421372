"""The Berkeley Function Calling Leaderboard, by the data and checkers of the package ``bfcl-eval``."""

from rlfactory_benchmarks.bfcl.verdicts import OutputVerdict, check_output

__all__ = ["OutputVerdict", "check_output"]
