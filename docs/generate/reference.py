"""Pages of the public Python API, one a module: what each module's ``__all__`` says."""

from __future__ import annotations


def reference_pages() -> dict[str, str]:
    return {"reference/index.md": "# API\n\n::: rlfactory_core.task.Task\n"}
