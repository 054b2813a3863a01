"""The command ``mm2py`` and its subcommands. Only this package joins mm2py with the connectors."""
