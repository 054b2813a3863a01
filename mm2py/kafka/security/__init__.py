"""Secured connections to a cluster: TLS, certificates and keys, SASL, tokens."""
