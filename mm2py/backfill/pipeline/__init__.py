"""A backfill with ``--where`` and ``--select``: Spark SQL stands between the source and the copier.

A task reads its range of one partition in order (``history``), Spark applies the expressions (``expressions``), and
the flow's own copier runs on what is left: ``filtered_source`` answers its fetches with batches that have the offsets
of the source, and holes where records were left out, as a compacted log has them. So fences, positions and the ledger
are those of any other backfill. In Connect a transform changes single records in the worker; MirrorMaker 2 has no more.
"""
