"""What the old side has after a failover and the new side never got: listed, settled, and the way back begun.

``found.py`` has the list, ``settlement.py`` what operators have decided, ``extras_inquiry.py`` asks both clusters,
``replaying.py``, ``topic_export.py`` and ``parquet_export.py`` carry records elsewhere, ``reinstating.py`` has the
steps of ``mm2py dr reinstate``. MirrorMaker 2 has no counterpart: it copies topics whole once more, or leaves them.
"""
