"""Replaces rich, earlier on the path, for the measured mirrors: users of mm2py have no rich."""

raise ImportError("rich is not installed where mm2py is used")
