"""A long link between two data centres on one machine: the rig of ``make bench-wan`` and of tests/cluster/wan.

``link`` says what the link is like, ``relay.go`` carries its packets, ``relay`` builds and runs that, ``rig`` joins
namespaces with it. How the numbers are to be read: docs/benchmarks.md.
"""
