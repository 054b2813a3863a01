"""Refuses what compares records of both sides by their content, for a flow whose records are changed on their way."""

from __future__ import annotations

from mm2py.errors import ConfigError
from mm2py.flow import Flow
from mm2py.transforms.chain import TransformChain


def refuse_transformed(flow: Flow, transforms: TransformChain | None, command: str, why: str, *, remedy: str) -> None:
    """Refuse a command for a flow with transforms. Raises: ConfigError."""
    if transforms is not None:
        names = ", ".join(step.alias for step in transforms.steps)
        raise ConfigError(f"{command} is refused for {flow}: it has transforms ({names}), and {why}.", remedy=remedy)
