"""The default model of a run without `--model`: built from the task's recipe, warm-started, cached."""

from rlfactory_core.engines.local.tiny.folder import tiny_model_folder

__all__ = ["tiny_model_folder"]
