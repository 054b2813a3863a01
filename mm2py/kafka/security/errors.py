"""What can go wrong while a connection is secured, one class per reaction. All may be mended while mm2py runs."""

from __future__ import annotations

from mm2py.kafka.errors import KafkaError


class TlsFailed(KafkaError):
    """No TLS connection came about, or the broker ended it because of a certificate."""

    retriable = True

    def __init__(self, cluster: str, broker: str, why: str, *, remedy: str) -> None:
        super().__init__(f"No TLS connection to {broker} of {cluster}: {why}.", remedy=f"{remedy} mm2py keeps trying.")


class KeyMaterialUnusable(KafkaError):
    """A certificate or key cannot be read. No message of it holds any of its content."""

    retriable = True

    def __init__(self, where: str, why: str, *, remedy: str) -> None:
        super().__init__(f"{where} cannot be used: {why}.", remedy=remedy)


class AuthenticationFailed(KafkaError):
    """The broker does not accept our credentials, or could not prove its own. Tried again after growing pauses."""

    retriable = True

    def __init__(self, cluster: str, broker: str, mechanism: str, why: str, *, remedy: str) -> None:
        super().__init__(
            f"{broker} of {cluster} did not authenticate mm2py by {mechanism}: {why}.",
            remedy=f"{remedy} mm2py tries again after a pause that grows to half a minute.",
        )


class TokenUnavailable(KafkaError):
    """No token for OAUTHBEARER could be had."""

    retriable = True

    def __init__(self, where: str, why: str, *, remedy: str) -> None:
        super().__init__(f"No token from {where}: {why}.", remedy=remedy)
