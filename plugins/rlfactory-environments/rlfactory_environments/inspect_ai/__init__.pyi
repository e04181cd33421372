from .task import rlfactory_task as rlfactory_task
