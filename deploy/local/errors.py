"""The errors of the starter, each with its remedy. MirrorMaker 2 has no counterpart."""

from pathlib import Path


class StarterError(Exception):
    """A server could not be started on this machine. ``remedy`` says what to do."""

    def __init__(self, what: str, *, remedy: str) -> None:
        super().__init__(f"{what} {remedy}".strip())
        self.what = what
        self.remedy = remedy


class MissingTool(StarterError):
    """Java, Maven or a jar is missing and could not be installed."""


class MachineTooSmall(StarterError):
    """A limit of the operating system is below what brokers need."""


class ServerNotReady(StarterError):
    """A server ended or did not answer in time. The end of its log is in the message."""

    def __init__(self, what: str, *, log_path: Path) -> None:
        self.log_path = log_path
        super().__init__(what, remedy=f"Its log ({log_path}) ends with:\n{tail(log_path)}")


class PortTaken(ServerNotReady):
    """Another process took the port between choice and binding. Other ports will do."""


def tail(log_path: Path, *, max_bytes: int = 6_000) -> str:
    """Return the end of a log, whole lines only; a missing log reads as empty."""
    try:
        with log_path.open("rb") as log:
            size = log.seek(0, 2)
            log.seek(max(0, size - max_bytes))
            text = log.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return "(no log was written)"
    return text if size <= max_bytes else text.partition("\n")[2]
