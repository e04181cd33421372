from .runtime import TaskRuntime as TaskRuntime
from .scorers import ScorerLifecycle as ScorerLifecycle
from .settings import DataColumns as DataColumns
from .stepwise import StepwiseEpisode as StepwiseEpisode
from .task import Task as Task
