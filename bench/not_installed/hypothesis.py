"""Stands before the real one on the path of the mirrors that are measured: users of mm2py have no hypothesis."""

raise ImportError("hypothesis is not installed where mm2py is used")
