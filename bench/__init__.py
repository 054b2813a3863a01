"""mm2py beside MirrorMaker 2 and a franz-go loop: the same topics, from the same brokers, in turn.

How to run it, and what is measured: docs/benchmarks.md.

    python -m bench --workload uncompressed --records 300000 --mirrors mm2py

``workloads`` says what is copied, ``filling`` writes it, ``mirrors`` says how each mirror is started, ``measure`` and
``paced`` watch one run, ``rounds`` goes through all of them, ``summary`` and ``goals`` judge, ``report`` and ``chart``
show.
"""
