"""Events of flows and workers, read from the topics that record them: a feed, and streams of it for callers."""
