"""What ``/metrics`` shows: the names of MirrorMaker 2 and Connect, those of mm2py, and the values behind both."""
