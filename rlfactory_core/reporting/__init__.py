"""The results of a run: its folder, metrics, trajectories, report and progress events.

The names here are for a plugin's own report sections and engines, and for code that reads a run's folder.
"""

from rlfactory_core.reporting.charts import Chart, Line
from rlfactory_core.reporting.folder import RunFolder
from rlfactory_core.reporting.metrics import component_means, group_metrics
from rlfactory_core.reporting.report import Section
from rlfactory_core.reporting.run_data import RunData

__all__ = ["Chart", "Line", "RunData", "RunFolder", "Section", "component_means", "group_metrics"]
