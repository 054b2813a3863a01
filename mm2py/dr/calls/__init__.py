"""The verbs of a recovery, as a command and a worker's REST call them: what is planned, asked for and done.

``verbs.py`` is the table of those that REST has. Nothing here prints, or reads a command line.
"""
