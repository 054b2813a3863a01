"""What people read of an uninstall plan. Pure."""

from __future__ import annotations

from mm2py.secret import printable
from mm2py.uninstall.planned import UninstallPlan


def lines_of(plan: UninstallPlan, folder: str) -> list[str]:
    """Return the lines. ``folder``: into which positions and ledger would be exported."""
    lines = [f"{plan.flow}: " + ("removed would be" if plan.removes_anything else "nothing is left to remove.")]
    lines += [f"  {one.cluster}: topic {one.name}, with all its records" for one in plan.remote_topics]
    lines += [f"  {one.cluster}: topic {one.name}" for one in plan.topics]
    lines += [f"  {cluster}: ACL {acl}" for cluster, acl in plan.acls]
    if plan.topics:
        lines.append(f"Before that, positions and ledger are exported into {folder}.")
    if plan.kept:
        lines.append("It stays:")
        lines += [f"  {one.cluster}: {one.what}: {one.why}" for one in plan.kept]
    lines += [f"note: {note}" for note in plan.notes]
    lines += [f"refused: {why}" for why in plan.refusals]
    return [printable(line) for line in lines]
