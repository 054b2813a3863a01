"""The name under which a cluster knows our user, for ``kafka-acls``; and when our certificate ends.

It reads the key store, as a connection does. A broker may map names (``ssl.principal.mapping.rules``): then the name
differs.
"""

from __future__ import annotations

from typing import Final

from mm2py.checks.rights import PLACEHOLDER
from mm2py.kafka.errors import KeyMaterialUnusable
from mm2py.kafka.security.key_material import identity_of
from mm2py.kafka.security.settings import PasswordCredential, Security
from mm2py.kafka.security.tls import content_of

ANONYMOUS: Final = "User:ANONYMOUS"


def principal_of(security: Security) -> tuple[str, int | None]:
    """Return the principal, and when our certificate ends in ms; ``PLACEHOLDER`` if the file does not tell it.

    Blocks while a file is read.
    """
    subject, ends_ms = _certificate(security)
    if security.sasl is not None:
        credential = security.sasl.credential
        name = f"User:{credential.username}" if isinstance(credential, PasswordCredential) else PLACEHOLDER
        return name, ends_ms
    return subject or ANONYMOUS, ends_ms


def _certificate(security: Security) -> tuple[str, int | None]:
    keys = None if security.tls is None else security.tls.keys
    if keys is None:
        return "", None
    try:
        certificate = identity_of(keys, content_of(keys.path)).chain[0]
    except KeyMaterialUnusable:
        return PLACEHOLDER, None  # MM0201 says why
    return f"User:{certificate.subject.rfc4514_string()}", int(certificate.not_valid_after_utc.timestamp() * 1000)
