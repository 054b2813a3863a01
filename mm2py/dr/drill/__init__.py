"""Drills of a failover: what it would do for each consumer group now, proven by the records, and nothing is moved.

``positions.py`` asks where groups would go on on the target, ``group_drill.py`` commits that for groups of its own
(``shadow_groups.py``), reads what they would read there (``first_records.py``), and ``judgement.py`` compares it with
what the group on the source reads next. ``comparison.py`` compares the copies. ``report.py``, ``printout.py`` and
``page.py`` say what was found; ``drill_log.py`` keeps an entry of it (``entry.py``) on both clusters.

MirrorMaker 2 has nothing of the kind.
"""
