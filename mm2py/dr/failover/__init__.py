"""A failover: the source is lost, and producers and groups go on on the target, as far as that one has their records.

``placing.py`` decides where groups go on, ``losses.py`` what is lost, ``cutting_off.py`` ends the flow on the target,
``actions.py`` are the steps that the runner (``mm2py/dr/runner.py``) calls.

MirrorMaker 2 has no counterpart; its users follow a runbook by hand.
"""
