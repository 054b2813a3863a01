"""Stands before the real one on the path of the mirrors that are measured: users of mm2py have no rich."""

raise ImportError("rich is not installed where mm2py is used")
