"""What ``mm2py status`` shows: facts of both clusters, the report that is made of them, and how it is printed."""
