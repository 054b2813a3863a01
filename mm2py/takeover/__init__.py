"""``mm2py takeover`` and ``mm2py handback``: a mirror that runs as something else goes on as mm2py, and back.

Settings: ``connector_configs.py`` reads the connectors of Kafka Connect, ``strimzi.py`` a resource of Strimzi;
``what_runs.py`` makes one model of both; ``older_mirrors.py`` has the files of MirrorMaker 1. ``account.py`` says for
each setting what becomes of it, ``transforms.py`` for transforms, ``file_text.py`` writes the settings file that does
the same, and ``settings_file.py`` checks it as a worker would read it. ``printout.py`` shows it.

Positions: ``positions_plan.py`` and ``return_plan.py`` judge them. All of these are pure. ``connect_rest.py`` asks
Kafka Connect, ``switching.py`` carries positions over, and ``handing_back.py`` back.
"""
