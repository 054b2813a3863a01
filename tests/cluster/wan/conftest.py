"""A long link between two places, for a test that asks for one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from bench.wan.link import Link
from bench.wan.rig import Rig
from deploy.local.errors import StarterError


@pytest.fixture
def make_rig() -> Iterator[Callable[[Link], Rig]]:
    """Return what makes a rig that lasts as long as the test. Skipped without root, ``ip`` or Go."""
    with ExitStack() as rigs:

        def make(link: Link) -> Rig:
            try:
                return rigs.enter_context(Rig(link))
            except StarterError as error:
                pytest.skip(f"no long link on this machine: {error}")

        yield make
