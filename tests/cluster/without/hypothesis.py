"""Stands before the real hypothesis in the path of processes under test, as if it were not installed.

kio loads it where it can be had, which costs each start a fifth of its CPU. No operator has it either.
"""

raise ImportError("hypothesis is for tests only")
