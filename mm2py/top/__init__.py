"""``mm2py top``: what its screen shows, and what its keys do. Pure; ``mm2py/cli/top.py`` has the terminal."""
