"""TLS on both sides of a flow: a second listener for the brokers, and the settings of a mirror for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from deploy.local.certificates import Authority, tls_listener, write_private


@dataclass(frozen=True, slots=True)
class Encryption:
    """Settings of brokers, and of a mirror for each of its clusters."""

    listeners: Mapping[str, str]
    broker: Mapping[str, str]
    client: Mapping[str, str]

    @classmethod
    def none(cls) -> Self:
        return cls({"PLAINTEXT": "PLAINTEXT"}, {}, {})

    @classmethod
    def beside_plain_text(cls, directory: Path) -> Self:
        """Return TLS as a second listener, after the plain one. Writes certificates into ``directory``."""
        authority = Authority("bench authority")
        trusted = write_private(directory / "ca.pem", authority.pem())
        return cls(
            {"PLAINTEXT": "PLAINTEXT", "SSL": "SSL"},
            tls_listener("SSL", directory, authority.issue("broker"), authority),
            {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": str(trusted)},
        )
