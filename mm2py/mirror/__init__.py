"""``mm2py mirror``: one command without a settings file, with the options of the older mirrors as well.

``old_options.py`` has the options of MirrorMaker 1 and of the Go mirror maker, ``client_file.py`` their files,
``request.py`` what is asked for, ``properties_text.py`` the settings file that does the same, ``progress.py`` what is
told while it runs. All of it is pure; ``mm2py/cli/mirror.py`` runs it.
"""
