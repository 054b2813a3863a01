"""A machine without a Kerberos server, or a checkout without the package gssapi, is told how to get it."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.local import kdc
from deploy.local.errors import MissingTool


def test_a_machine_without_a_kerberos_server_is_told_how_to_get_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(kdc, "_LOOKED_IN", str(tmp_path))
    (tmp_path / "kdb5_util").touch(0o755)
    with pytest.raises(
        MissingTool, match=r"no Kerberos server here \(krb5kdc, kadmin.local, kinit\).*install krb5-kdc"
    ):
        kdc.Kdc()


def test_a_checkout_without_gssapi_is_told_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(kdc, "GSSAPI_FOLDER", tmp_path)
    with pytest.raises(MissingTool, match="make venv-kerberos"):
        kdc.gssapi_folder()
    (tmp_path / "gssapi").mkdir()
    assert kdc.gssapi_folder() == tmp_path
