"""Proves that a copy is what its source is: both logs compared range by range, as a Spark job."""
