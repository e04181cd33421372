"""The section of the configuration for one scorer or verifier."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field


class RewardConfig(BaseModel):
    """One scorer or verifier: its name, its weight, and options of its own beside them."""

    model_config = ConfigDict(extra="allow", frozen=True, use_attribute_docstrings=True)

    name: str
    label: str | None = None
    """Its name in metrics and trajectories, which no other one may have; none: ``name``."""
    weight: float = 1.0
    deadline_s: Annotated[float, Field(gt=0.0)] | None = None
    """For one trajectory or group, then it is a verifier fault; none: the scorer's own ``deadline_s``, or 60."""

    @property
    def key(self) -> str:
        """Its name in metrics and trajectories."""
        return self.label or self.name

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


def _rewards(value: Any) -> Any:
    """``{exact_match: 1.0}`` is short for ``[{name: exact_match, weight: 1.0}]``."""
    if isinstance(value, dict):
        return [{"name": name, "weight": weight} for name, weight in value.items()]
    return value


def _no_two_alike(rewards: tuple[RewardConfig, ...] | None) -> tuple[RewardConfig, ...] | None:
    keys = [reward.key for reward in rewards or ()]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        raise ValueError(f"two of them are called '{twice}'. Give one a label, as in {{name: {twice}, label: other}}.")
    return rewards


Rewards = Annotated[tuple[RewardConfig, ...] | None, BeforeValidator(_rewards), AfterValidator(_no_two_alike)]
