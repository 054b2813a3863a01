"""Getting into a cluster: TLS, certificates and keys, SASL, tokens."""
