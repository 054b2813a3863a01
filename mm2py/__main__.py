"""``python -m mm2py`` is the command ``mm2py``."""

from mm2py.cli import main

main()
