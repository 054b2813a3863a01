"""The digest of a chain in the stored position."""

from __future__ import annotations

import json

from mm2py.records.source_offset import StoredPosition, decode_value, encode_value


def test_a_position_keeps_the_digest_and_is_not_for_versions_without_transforms() -> None:
    position = StoredPosition(next_source=7, transforms="0123456789abcdef")
    fields = json.loads(encode_value(position))
    assert (fields["mm2py"], fields["readable_from"], fields["transforms"]) == (2, 2, "0123456789abcdef")
    assert decode_value(encode_value(position)) == position


def test_a_position_without_transforms_is_for_every_version() -> None:
    fields = json.loads(encode_value(StoredPosition(next_source=7)))
    assert fields["mm2py"] == 1
    assert not {"readable_from", "transforms"} & fields.keys()
