"""The history of flows: read by every REST process, written by that of a flow's coordinator."""
