"""``mm2py check``: what a settings file needs of its clusters, asked before anything runs. Nothing is written."""
