"""The results of a run: its folder, metrics, trajectories, report and progress events.

The names here are for a plugin's own report sections and engines, and for code that reads a run's folder.
"""

from rlfactory_core.reporting.charts import Chart, Line
from rlfactory_core.reporting.eval_table import EvalTable
from rlfactory_core.reporting.folder import RUNS, RunFolder, replace_link, write_atomic
from rlfactory_core.reporting.kept_images import KeptImages, read_image
from rlfactory_core.reporting.loggers import Loggers, open_loggers
from rlfactory_core.reporting.metrics import component_means, eval_metrics, group_metrics, tool_metrics
from rlfactory_core.reporting.report import ReportSection, live_sections, page_environment
from rlfactory_core.reporting.rescored import Comparison, RescoredAttempt
from rlfactory_core.reporting.run_data import RunData, eval_value, scorers, success_metric
from rlfactory_core.reporting.token_problems import mask_problem
from rlfactory_core.reporting.trajectories import StoredTrajectory, json_text

__all__ = [
    "RUNS",
    "Chart",
    "Comparison",
    "EvalTable",
    "KeptImages",
    "Line",
    "Loggers",
    "ReportSection",
    "RescoredAttempt",
    "RunData",
    "RunFolder",
    "StoredTrajectory",
    "component_means",
    "eval_metrics",
    "eval_value",
    "group_metrics",
    "json_text",
    "live_sections",
    "mask_problem",
    "open_loggers",
    "page_environment",
    "read_image",
    "replace_link",
    "scorers",
    "success_metric",
    "tool_metrics",
    "write_atomic",
]
