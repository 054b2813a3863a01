"""Other programs beside which mm2py is measured."""
