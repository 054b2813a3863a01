"""What happens to flows and workers, out of the topics that keep it: a feed, and streams of it for callers."""
