"""Kerberos from a client's settings: the options of ``Krb5LoginModule`` and ``sasl.kerberos.*``.

Counterpart: what KerberosLogin of Apache Kafka and the JDK's Krb5LoginModule check when they are configured.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from mm2py.config.layers import Findings, named
from mm2py.config.security import jaas, keys
from mm2py.kafka.security import kerberos_library
from mm2py.kafka.security.settings import KerberosCredential, RefreshSettings

_WITHOUT_EFFECT: Final = frozenset({"debug", "useFirstPass", "tryFirstPass", "storePass", "clearPass"})
"""Named at start if they are true. The others that are not read are true here without saying so: mm2py keeps no
password, prompts for nothing, and reads krb5.conf at each login."""
EXAMPLE: Final = f'{jaas.KERBEROS} required useKeyTab=true keyTab="/etc/mm2py/mirror.keytab" principal="mirror@REALM";'


def read_kerberos(found: Findings, module: jaas.LoginModule) -> KerberosCredential | None:
    """Return the credential, which counts only if no reason against it was added; None without the package."""
    where = found.at(keys.JAAS_CONFIG)
    if problem := kerberos_library.package_problem():
        found.refuse(f"{found.at(keys.MECHANISM)} is GSSAPI, and {problem}")
        return None
    flags = _flags(found, where, module)
    texts = {name: value.reveal() for name, value in module.options.items() if name not in jaas.KERBEROS_FLAGS}
    service = _service(found, where, texts.get("serviceName", ""))
    if not flags.get("isInitiator", True):
        found.refuse(f"{where} has isInitiator=false, and a client has to initiate (remove isInitiator)")
    if flags.get("renewTGT"):
        found.refuse(
            f"{where} has renewTGT=true, and mm2py renews no tickets of others (use useKeyTab, or let k5start or krenew"
            " renew the cache, and remove renewTGT)"
        )
    uses_keytab, uses_cache = flags.get("useKeyTab", False), flags.get("useTicketCache", False)
    if not (uses_keytab or uses_cache):
        found.refuse(f"{where} has neither useKeyTab=true nor useTicketCache=true, and mm2py prompts for no password")
    keytab, cache = _file(texts.get("keyTab", "")), _file(texts.get("ticketCache", ""))
    principal = texts.get("principal", "")
    if uses_keytab and not keytab:
        found.refuse(f'{where} has useKeyTab=true and no keyTab (write keyTab="/path/of/the.keytab")')
    if uses_keytab and not principal:
        found.refuse(f'{where} has useKeyTab=true and no principal (write principal="name@REALM")')
    if "*" in principal or "\0" in "".join(texts.values()):
        found.refuse(f"{where} has a principal or file that cannot be one")
    if not uses_keytab and keytab:
        found.refuse(f"{where} has a keyTab without useKeyTab=true (write useKeyTab=true, or remove keyTab)")
    if uses_keytab and uses_cache:
        _warn(found, "useTicketCache does nothing beside useKeyTab: mm2py logs in with the keytab")
    if not uses_keytab:
        renewal = RefreshSettings(buffer_s=0.0, min_period_s=0.0)
        return KerberosCredential(service, principal or None, ticket_cache=cache or None, renewal=renewal)
    renewal = RefreshSettings(
        found.value(keys.TICKET_WINDOW_FACTOR),
        found.value(keys.TICKET_JITTER),
        found.value(keys.MIN_RELOGIN) / 1000,
        buffer_s=0.0,
    )
    return KerberosCredential(service, principal, Path(keytab), renewal=renewal)


def _flags(found: Findings, where: str, module: jaas.LoginModule) -> dict[str, bool]:
    flags = {}
    for name, value in module.options.items():
        if name not in jaas.KERBEROS_FLAGS:
            continue
        text = value.reveal().strip().lower()
        if text not in ("true", "false"):
            found.refuse(f"{where} has an option {name} that is neither true nor false")
        flags[name] = text == "true"
    idle = [name for name in sorted(_WITHOUT_EFFECT) if flags.get(name)]
    if idle:
        _warn(found, f"options that do nothing here: {', '.join(idle)}")
    return flags


def _service(found: Findings, where: str, by_module: str) -> str:
    by_setting = found.value(keys.KERBEROS_SERVICE) or ""
    if by_setting and by_module and by_setting != by_module:
        found.refuse(f"{found.at(keys.KERBEROS_SERVICE)} and serviceName of {where} differ (keep one of them)")
    service = by_setting or by_module
    if not service:
        found.refuse("sasl.kerberos.service.name is not set (write the first part of the brokers' principal: kafka)")
    elif not service.isprintable() or set(service) & set("@/ "):
        found.refuse(f"{found.at(keys.KERBEROS_SERVICE)} is no first part of a principal (write kafka)")
    return service


def _warn(found: Findings, warning: str) -> None:
    found.warnings.append(f"{named(found.layer[keys.JAAS_CONFIG.name])}: {warning}")


def _file(text: str) -> str:
    """Java takes a path with this prefix, too."""
    return text[5:] if text[:5].lower() == "file:" else text
