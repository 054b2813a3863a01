"""A verification without Spark: the same comparison in the process of the command (``mm2py verify --local``)."""
