"""The default model of a run without `--model`: built from the task's recipe, warm-started, cached."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
