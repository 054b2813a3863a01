"""Replaces hypothesis, earlier on the path, for the measured mirrors: users of mm2py have no hypothesis."""

raise ImportError("hypothesis is not installed where mm2py is used")
