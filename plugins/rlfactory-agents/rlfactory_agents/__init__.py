"""Agents that are not ours play a task: in any framework, in any language, through an endpoint for each attempt.

The public names are models and agents as tools. They are loaded on first use, because finding the plugin imports this
package.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
