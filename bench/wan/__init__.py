"""A long link between two data centres on one machine: the rig of ``make bench-wan`` and of tests/cluster/wan.

``link`` describes the link, ``relay.go`` carries its packets, ``relay`` builds and runs ``relay.go``, ``rig`` joins
namespaces with the link. docs/benchmarks.md explains the results.
"""
