"""A backfill with ``--where`` and ``--select``: Spark SQL filters and changes records before they are copied.

A task reads its range of one partition in order (``history``), Spark applies the expressions (``expressions``), and
the flow's own copier copies what is left: ``filtered_source`` answers its fetches with batches that have the offsets
of the source, and holes where records were left out, as a compacted log has them. So fences, positions and the ledger
work as in any other backfill. MirrorMaker 2 has only Connect's transforms, which change single records in the worker.
"""
