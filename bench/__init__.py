"""mm2py beside MirrorMaker 2 and a franz-go loop: the same topics, from the same brokers, alternately.

How to run it, and what is measured: docs/benchmarks.md.

    python -m bench --workload uncompressed --records 300000 --mirrors mm2py

``workloads`` defines the source topics, ``filling`` writes them, ``mirrors`` starts each mirror, ``measure`` and
``paced`` watch one run, ``rounds`` runs all of them, ``summary`` judges them by the goals, ``report`` and ``chart``
show the results.
"""
