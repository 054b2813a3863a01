"""Candidacy: whether a worker may claim to lead its group, and whether a leader may go on.

Two backends answer. Through the control log everybody may claim, and the log decides. Through ZooKeeper a znode
decides who may claim (``zookeeper.py``). Either way a leader is who the control log says, and the leader epoch is its.
"""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import Protocol


class Standing(Enum):
    """What a candidacy lets its worker do, now."""

    LEAD = "may claim, and act as leader"
    SUSPENDED = "whoever leads stops acting, and does not resign yet: nobody else may claim so far"
    LOST = "whoever leads steps down, and may not claim: somebody else may, now or soon"


class Candidacy(Protocol):
    """The standing of one worker in one group. ``run`` has to be running for it to become anything but LOST."""

    @property
    def standing(self) -> Standing:
        """Read it again after each ``await``: it falls by the clock alone."""
        ...

    @property
    def may_claim(self) -> bool:
        """Whether ``standing`` is LEAD."""
        ...

    @property
    def evidence(self) -> str:
        """Why we may claim, for the claim's record; empty where nothing but the log decides, or we may not."""
        ...

    async def changed(self, seen: Standing) -> Standing:
        """Wait until the standing is another than ``seen``, and return it. Cancelling costs nothing."""
        ...

    async def run(self) -> None:
        """Contend until cancelled; then somebody else may be elected at once. May be run again.

        Whoever may claim and cannot write to the control log stands in everybody's way: cancel it until that is over.
        """
        ...


class ElectionByLog:
    """Everybody may claim at any time; the control log says which claim counts."""

    standing = Standing.LEAD
    may_claim = True
    evidence = ""

    async def changed(self, seen: Standing) -> Standing:
        if seen is Standing.LEAD:
            await asyncio.get_running_loop().create_future()
        return Standing.LEAD

    async def run(self) -> None:
        await asyncio.get_running_loop().create_future()
