"""``mm2py plan``: what would start, be created, changed or refused, before anything runs."""
