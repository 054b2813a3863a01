"""Which member of a group may claim leadership: anyone (``log``), or the one that ZooKeeper names (``zookeeper``).

A new backend needs a module here, a case in ``make_backend`` (``backend.py``), its settings in ``config/groups.py`` and
``config/settings.py``, the names of its addresses and credentials in ``secret.py``, and an extra in ``pyproject.toml``.
"""
