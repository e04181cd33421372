"""Agents that are not ours play a task: in any framework, in any language, through an endpoint for each attempt.

The public names are models and agents as tools. They are loaded on first use, because finding the plugin imports this
package.
"""

from rlfactory_core.utils.lazy_names import lazy_names

__getattr__, __all__ = lazy_names(__name__, __file__)
