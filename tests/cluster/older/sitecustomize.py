"""In the path of a process under test, makes it an mm2py that neither knows nor writes which group runs a flow."""

from __future__ import annotations

from mm2py.shared_settings.flow_owner import OwnerWatch


async def _nothing(*_: object) -> None: ...


for _name in ("take", "keep", "refuse_unread"):
    setattr(OwnerWatch, _name, _nothing)
