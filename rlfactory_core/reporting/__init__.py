"""What a run leaves behind and says of itself: its folder, metrics, trajectories, report and progress events.

The names here are for a plugin's own report sections.
"""

from rlfactory_core.reporting.charts import Chart, Line
from rlfactory_core.reporting.report import Section
from rlfactory_core.reporting.run_data import RunData

__all__ = ["Chart", "Line", "RunData", "Section"]
