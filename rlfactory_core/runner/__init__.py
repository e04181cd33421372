"""`rlfactory run` and `rlfactory eval`, from Python: resolve a configuration, train, resume, evaluate.

`TaskBench` plays a task without an engine, by a policy such as `oracle`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
