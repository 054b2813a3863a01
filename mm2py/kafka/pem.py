"""PEM as it stands in properties files: blocks found and put into the shape that every library reads. Pure.

Kafka takes PEM without line breaks, because a properties file that continues a line by a ``\\`` loses them. Answers to
PemParser in DefaultSslEngineFactory of Apache Kafka.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_BLOCK: Final = re.compile(r"-{5}\s*BEGIN\s+([A-Z0-9 ]{1,40}?)\s*-{5}(.*?)-{5}\s*END\s+\1\s*-{5}", re.DOTALL)
_HEADER: Final = re.compile(r"^[ \t]*[A-Za-z-]+:[^\n]*$", re.MULTILINE)
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]+={0,2}")


@dataclass(frozen=True, slots=True)
class PemBlock:
    label: str
    text: str
    """The whole block, lines of 64 characters."""

    def __repr__(self) -> str:
        return f"PemBlock({self.label!r}, {len(self.text)} characters)"

    @property
    def is_certificate(self) -> bool:
        return self.label in ("CERTIFICATE", "X509 CERTIFICATE")

    @property
    def is_key(self) -> bool:
        return self.label.endswith("PRIVATE KEY")


def pem_blocks(text: str) -> list[PemBlock]:
    """Return the blocks of a text in their order; what stands between them is passed over.

    Raises:
        ValueError: what stands in a block cannot be base64. The message does not repeat it.
    """
    blocks = []
    for label, body in _BLOCK.findall(text.replace("\r\n", "\n").replace("\r", "\n")):
        headers = [] if "PRIVATE KEY" not in label else _HEADER.findall(body)
        base64 = "".join(_HEADER.sub("", body).split())
        if not _BASE64.fullmatch(base64):
            raise ValueError(f"its {label} block is damaged")
        lines = [base64[at : at + 64] for at in range(0, len(base64), 64)]
        head = [*(header.strip() for header in headers), ""] if headers else []
        blocks.append(
            PemBlock(label, "\n".join([f"-----BEGIN {label}-----", *head, *lines, f"-----END {label}-----\n"]))
        )
    return blocks
