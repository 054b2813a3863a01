"""Other programs that mm2py is measured against."""
