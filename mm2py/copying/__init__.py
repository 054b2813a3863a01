"""The way of a batch: read, plan, copy, send, acknowledge, store. Decisions are pure, and lanes carry them out."""
