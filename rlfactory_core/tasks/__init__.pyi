from rlfactory_core.tasks.runtime import TaskRuntime as TaskRuntime
from rlfactory_core.tasks.scorers import ScorerLifecycle as ScorerLifecycle
from rlfactory_core.tasks.stepwise import StepwiseEpisode as StepwiseEpisode
from rlfactory_core.tasks.task import Task as Task
