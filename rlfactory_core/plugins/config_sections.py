"""The sections that plugins add to the configuration, under ``plugins.NAME``."""

from __future__ import annotations

from rlfactory_core.config import Section
from rlfactory_core.errors import PluginError
from rlfactory_core.lazy import Lazy
from rlfactory_core.plugins.loading import Registration, words


def section_class(item: Registration) -> type[Section]:
    """The schema that a plugin registers as a config section.

    Raises:
        PluginError: it is none.
    """
    found = item.factory.load() if isinstance(item.factory, Lazy) else item.factory
    if isinstance(found, type) and issubclass(found, Section):
        return found
    raise PluginError(
        f"The plugin {item.plugin} registers the {words(item.kind)} '{item.name}' with {found!r}; expected a subclass "
        "of rlfactory_core.Section, or Lazy('module:Class') of one."
    )
