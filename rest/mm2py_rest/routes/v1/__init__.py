"""``/v1``: what operators ask. Each list is paged, each error has Connect's shape.

All routes here only read; those that change something are in ``routes``, as ``restarts.py`` and ``recoveries.py``.
"""

from typing import Final

from mm2py_rest.routes.v1 import backfills, config, dr, events, flows, history, losses, offsets, status, why

RESOURCES: Final = (status, flows, history, why, dr, offsets, losses, backfills, config, events)
