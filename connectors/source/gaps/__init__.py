"""Gaps: kept in the status topic, shown to operators, accepted by them."""
