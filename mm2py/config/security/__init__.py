"""The settings of secured connections: from ``ssl.*`` and ``sasl.*`` to what a client needs."""
