"""Transforms: what a flow changes in records on their way, or leaves out. MirrorMaker 2 has Connect's for this."""
