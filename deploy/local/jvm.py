"""One Java server as a process: started, frozen, ended, and never left behind."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from deploy.local.errors import StarterError
from deploy.local.guardian import guard
from deploy.local.java import java
from deploy.local.network import Namespace, inside

READY_TIMEOUT_S = 50.0 * float(os.environ.get("MM2PY_TESTS_PATIENCE", "1"))
"""How long a server may take until it serves; longer if MM2PY_TESTS_PATIENCE says that others use the machine."""
QUICK_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
LOGGING = (
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
    "-Dorg.slf4j.simpleLogger.showShortLogName=true",
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config.AbstractConfig=warn",  # 400 lines, three times a start
)


class JavaServer:
    """A main class with its arguments, which can run many times, one process at a time.

    The output of all runs is appended to ``log_path``. The process runs in a session of its own, so Ctrl-C in a
    terminal does not reach it. It ends with this Python process at the latest.
    """

    def __init__(
        self,
        main_class: str,
        arguments: Sequence[str],
        *,
        jars: Path,
        log_path: Path,
        heap: str = "512m",
        jvm_options: Sequence[str] = QUICK_START,
        extra_jvm_options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        network: Namespace | None = None,
    ) -> None:
        self.log_path = log_path
        self._network = network
        self._command = [
            *(str(java()), f"-Xmx{heap}", *LOGGING, *extra_jvm_options, *jvm_options),
            *("-cp", f"{jars}/*", main_class, *arguments),
        ]
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def alive(self) -> bool:
        """Whether the process runs; a frozen one does."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id of the current run.

        Raises:
            StarterError: it is not running.
        """
        if self._process is None or self._process.poll() is not None:
            raise StarterError(f"{self.log_path.stem} is not running.", remedy="Call start() first.")
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """How the last run ended: negative for a signal; None while it runs or before the first."""
        return None if self._process is None else self._process.poll()

    def start(self) -> None:
        """Start the process; returns at once. A server that already runs is left alone."""
        if self.alive:
            return
        with self.log_path.open("ab") as log, inside(self._network):
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.log_path.parent,
                env={**os.environ, **self._environment, **guard().environment()},
                start_new_session=True,
            )

    def stop(self, *, timeout_s: float = 30.0) -> None:
        """SIGTERM, thaw the process, and wait; SIGKILL if it does not end in time. Not running is no error."""
        if self._process is None or not self.alive:
            return
        self._process.send_signal(signal.SIGTERM)
        self.thaw()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """SIGKILL and wait until the process is gone. Not running is no error."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def freeze(self) -> None:
        """SIGSTOP: its connections stay open, without any answer. Returns when all its threads have stopped."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)  # on a busy machine threads still run

    def thaw(self) -> None:
        """SIGCONT: it continues as if no time had passed."""
        os.kill(self.pid, signal.SIGCONT)
