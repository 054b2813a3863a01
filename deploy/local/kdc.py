"""A real Kerberos server (MIT's) on loopback, for tests: a realm, principals and keytabs of its own.

    with Kdc(ticket_life_s=10) as kdc:
        keytab = kdc.keytab("mirror")
        environment = kdc.environment

The programs are the machine's. Nothing of the system's own ``/etc/krb5.conf`` is read or changed. MirrorMaker 2 has no
counterpart.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from deploy.local.errors import MissingTool, ServerNotReady
from deploy.local.guardian import guard
from deploy.local.ports import HOST, lease_ports

GSSAPI_FOLDER: Final = Path(__file__).parents[2] / ".venv-kerberos"
REALM: Final = "MM2PY.TEST"
READY_S: Final = 30.0
COMMAND_S: Final = 60.0
PROGRAMS: Final = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")
_SYSTEM_PROGRAMS: Final = "/usr/sbin:/usr/local/sbin:/sbin"
"""Debian installs servers there, and the PATH of a user may lack it."""
_LOOKED_IN: Final = f"{os.environ.get('PATH', '')}:{_SYSTEM_PROGRAMS}"

_CLIENT: Final = """[libdefaults]
    default_realm = {realm}
    dns_lookup_realm = false
    dns_lookup_kdc = false
    dns_canonicalize_hostname = false
    rdns = false
    udp_preference_limit = 1
[realms]
    {realm} = {{
        kdc = {host}:{port}
    }}
"""
_SERVER: Final = """[logging]
    kdc = FILE:{directory}/log
    admin_server = FILE:{directory}/log
[kdcdefaults]
    kdc_listen = ""
    kdc_tcp_listen = {host}:{port}
[realms]
    {realm} = {{
        database_name = {directory}/principals
        key_stash_file = {directory}/stash
        max_life = {life_s}s
        max_renewable_life = {life_s}s
    }}
"""


def gssapi_folder() -> Path:
    """Return what a process needs on its PYTHONPATH to import gssapi: it is not in the environment of the other tests.

    Raises:
        MissingTool: ``make venv-kerberos`` has not run, or the machine lacks what it takes.
    """
    if not (GSSAPI_FOLDER / "gssapi").is_dir():
        raise MissingTool("The package gssapi is not here.", remedy="Run `make venv-kerberos`.")
    return GSSAPI_FOLDER


def programs() -> dict[str, str]:
    """Return the paths of the programs. Raises: MissingTool, one of them is not installed."""
    found = {name: shutil.which(name, path=_LOOKED_IN) for name in PROGRAMS}
    missing = [name for name, path in found.items() if path is None]
    if missing:
        raise MissingTool(
            f"There is no Kerberos server here ({', '.join(missing)}).",
            remedy="Debian: apt-get update && apt-get install krb5-kdc krb5-admin-server krb5-user",
        )
    return {name: path for name, path in found.items() if path is not None}


class Kdc:
    """One server, removed with its ``with`` block."""

    def __init__(self, *, ticket_life_s: int = 86_400) -> None:
        """``ticket_life_s``: the longest life of tickets."""
        self._programs = programs()
        self._ticket_life_s = ticket_life_s
        self.directory = guard().new_directory("kdc")
        (self._lease,) = lease_ports(1)
        self.port = self._lease.port
        self.configuration = self.directory / "krb5.conf"
        """What clients read."""
        self._principals: set[str] = set()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        values = {
            "realm": REALM,
            "host": HOST,
            "port": self.port,
            "directory": self.directory,
            "life_s": self._ticket_life_s,
        }
        self.configuration.write_text(_CLIENT.format(**values))
        (self.directory / "kdc.conf").write_text(_SERVER.format(**values))
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "for tests only")
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
        self._lease.release()
        guard().remove_directory(self.directory)

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which clients find this server."""
        return {"KRB5_CONFIG": str(self.configuration)}

    @property
    def _own_environment(self) -> dict[str, str]:
        return {
            **os.environ,
            **self.environment,
            "KRB5_KDC_PROFILE": str(self.directory / "kdc.conf"),
            **guard().environment(),
        }

    def start(self) -> None:
        """Start it and wait until it listens. Raises: ServerNotReady."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs["krb5kdc"], "-n"],
                env=self._own_environment,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        end_s = time.monotonic() + READY_S
        while True:
            try:
                socket.create_connection((HOST, self.port), timeout=1).close()
                return
            except OSError:
                if self._process.poll() is not None or time.monotonic() > end_s:
                    self.stop()
                    raise ServerNotReady("The Kerberos server does not listen.", log_path=self._log) from None
            time.sleep(0.05)

    def stop(self) -> None:
        """End it; principals are kept."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def keytab(self, principal: str, name: str | None = None) -> Path:
        """Create a principal if it is not there yet, give it new keys, and return a keytab with them."""
        path = self.directory / f"{name or principal.replace('/', '-')}.keytab"
        if principal not in self._principals:
            self.administer("addprinc", "-randkey", principal)
            self._principals.add(principal)
        self.administer("ktadd", "-k", str(path), principal)
        return path

    def logins(self, principal: str) -> int:
        """Return how often a user has logged in."""
        return len(re.findall(rf"AS_REQ .* ISSUE: .* {re.escape(principal)}@{REALM} for", self._log.read_text()))

    def tickets(self, principal: str, keytab: Path, name: str) -> Path:
        """Fill a cache with a ticket, and return it."""
        cache = self.directory / f"{name}.tickets"
        self._run("kinit", "-k", "-t", str(keytab), "-c", str(cache), principal)
        return cache

    def administer(self, *command: str) -> None:
        """Run a command of ``kadmin.local``. Raises: ServerNotReady, it failed."""
        self._run("kadmin.local", "-r", REALM, *command)

    @property
    def _log(self) -> Path:
        return self.directory / "log"

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._programs[program], *arguments],
            env=self._own_environment,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=COMMAND_S,
        )
        if done.returncode:
            with self._log.open("ab") as log:
                log.write(done.stdout)
            raise ServerNotReady(f"{program} {' '.join(arguments)} failed.", log_path=self._log)
