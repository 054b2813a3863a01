"""Read settings of a flow with default settings, over one connection to a broker."""

from __future__ import annotations

from mm2py.copying.reading.read_settings import ReadSettings

READ_SETTINGS = ReadSettings(
    partition_max_bytes=1 << 20,
    alone_max_bytes=4 << 20,
    max_bytes=50 << 20,
    min_bytes=1,
    max_wait_ms=500,
    read_committed=False,
)
