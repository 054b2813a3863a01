"""Disaster recovery of a pair of clusters: cut over, fail over, fail back, undo.

MirrorMaker 2 has nothing like it: its users follow a runbook by hand.
"""
