"""Stands before the real rich in the path of processes under test: structlog loads it where it can be had."""

raise ImportError("rich is for development only")
