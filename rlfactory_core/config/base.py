"""The base of all sections of a configuration, and the types that their fields share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

Positive = Annotated[int, Field(gt=0)]
Natural = Annotated[int, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]


def _absolute(path: Path) -> Path:
    """A saved configuration is also read from other folders, by a resume and by other processes."""
    return path.expanduser().absolute()


File = Annotated[Path, AfterValidator(_absolute)]


class Section(BaseModel):
    """Base of all sections, also of a plugin's own ``Config``. A text below a field is the field's description."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, use_attribute_docstrings=True)
