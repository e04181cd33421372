"""The parts of the report that plugins bring. One that fails is told in its place and costs nothing else."""

from __future__ import annotations

from functools import partial
from html import escape

from rlfactory_core.plugins.loading import Registration
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.reporting.report import Section, SectionMaker
from rlfactory_core.reporting.run_data import RunData


def plugin_sections(registry: Registry) -> tuple[SectionMaker, ...]:
    """What the plugins in use register, for `write_report`."""
    return tuple(partial(_section, item) for item in registry.registered("report_section"))


def _section(item: Registration, run: RunData) -> Section | None:
    """Made by the plugin, or a note on why not.

    The boundary to a plugin's code at the end of a run, which may have taken days.
    """
    try:
        section = item.make(run)
        if section is None:
            return None
        if not isinstance(section, Section):
            raise TypeError(f"expected a rlfactory_core.reporting.Section or None, got {section!r}")
        f"{section.title}{section.html}".encode()  # what cannot be written must not come as far as the file
    except Exception as error:  # noqa: BLE001 - the boundary that the docstring names
        why = f"{type(error).__name__}: {error}".encode(errors="replace").decode()
        note = f"The plugin {item.plugin} could not make this section: {why}"
        return Section(item.name, f'<p class="note">{escape(note)}</p>')
    return section
