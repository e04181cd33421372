"""Search as a tool, and questions that need it, over a corpus, a retrieval server or made-up worlds.

To extend the task, derive from `SearchTask`. Everything here is loaded on first use, because finding the plugin imports
this package.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlfactory_search.task import SearchTask
    from rlfactory_search.worlds import Names, Question, World

__all__ = ["Names", "Question", "SearchTask", "World"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{'task' if name == 'SearchTask' else 'worlds'}"), name)
