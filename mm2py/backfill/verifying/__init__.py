"""Proves that a copy equals its source: compares both logs range by range, as a Spark job."""
