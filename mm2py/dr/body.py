"""The JSON that ``mm2py dr check --json`` prints and ``/v1`` of REST returns."""

from __future__ import annotations

from typing import Self

from pydantic import Field

from mm2py.dr.readiness import ReadyFor, RecoveryObstacle, RecoveryReadiness, RecoveryStanding
from mm2py.status.bodies import FormatBody


class RecoveryCheckBody(FormatBody):
    """Whether a flow is ready for a cutover and for a failover: ``mm2py dr check --json``."""

    flow: str = Field(examples=["A->B"])
    """The flow, from where producers are to where they would go."""
    at_ms: int = Field(examples=[1764000000000])
    """When the clusters were asked, by the clock of the machine that asked."""
    text: str
    """Both answers in words, a line each."""
    cutover: ReadyFor
    """Whether it is ready for a cutover."""
    failover: ReadyFor
    """Whether it is ready for a failover."""
    lost_s: float | None = Field(examples=[0.4])
    """How many seconds of records a failover now would lose; null: not known."""
    lost_records: int | None = Field(examples=[1200])
    """How many records it would lose; null: not known."""
    is_lost_at_least: bool
    """There may be more of them."""
    safe_at_ms: int | None = Field(examples=[1764000000000])
    """Everything up to this moment is copied; null: not known."""
    standing: RecoveryStanding
    """How far the last recovery has come."""
    obstacles: tuple[RecoveryObstacle, ...]
    """What stands in the way, with its way out."""

    @classmethod
    def of(cls, found: RecoveryReadiness) -> Self:
        """Return the object for a readiness."""
        return cls(
            exit_code=found.exit_code,
            flow=str(found.flow),
            at_ms=found.at_ms,
            text=found.text,
            cutover=found.cutover,
            failover=found.failover,
            lost_s=found.lost_s,
            lost_records=found.lost_records,
            is_lost_at_least=found.is_lost_at_least,
            safe_at_ms=found.safe_at_ms,
            standing=found.standing,
            obstacles=found.obstacles,
        )
