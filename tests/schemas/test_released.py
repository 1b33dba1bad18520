"""Released schemas stay as they are, since logs hold records of all of them; others are told of, and kept."""

from __future__ import annotations

import pytest

from lightstream.schemas.codec import Codec, schema_versions, write_files
from lightstream.schemas.codec.files import AVRO_DIR, released_schemas
from lightstream.schemas.distribution import installed_version, is_under_development
from lightstream.schemas.errors import NewerWriterError, UnknownSchemaError

BY_NAME = {version.name: version for version in schema_versions()}
UNKNOWN = b"\xc3\x01" + bytes(range(8)) + b"\x02"


def test_every_released_schema_is_there_as_it_was_released() -> None:
    files = {name: version.fingerprint[::-1].hex() for name, version in BY_NAME.items()}
    found = {name: files.get(name, "missing") for name in released_schemas()}
    assert found == released_schemas(), "a released schema was changed: restore it, and run `make schemas`"


def test_a_release_lists_all_its_schemas() -> None:
    unlisted = BY_NAME.keys() - released_schemas().keys()
    assert not unlisted or is_under_development(installed_version()), (
        "run `.venv/bin/python -m lightstream.schemas.codec.write_files --release`"
    )


def test_an_example_of_every_released_schema_is_kept_and_decodes() -> None:
    for name in released_schemas():
        version = BY_NAME[name]
        example = (AVRO_DIR / version.topic.name / f"{name}.example.bin").read_bytes()
        assert example[2:10] == version.fingerprint
        assert type(Codec().decode(example)) is version.record


def test_schemas_are_not_changed_under_a_released_version(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = {"type": "record", "name": "Changed", "fields": []}
    monkeypatch.setattr(write_files, "schema_of", lambda _: changed)
    monkeypatch.setattr(write_files, "installed_version", lambda: "0.2.0")
    before = {path: path.read_bytes() for path in AVRO_DIR.rglob("*") if path.is_file()}
    with pytest.raises(SystemExit, match=r"version 0\.2\.0 is released.*set the next one in pyproject\.toml"):
        write_files.main([])
    assert {path: path.read_bytes() for path in AVRO_DIR.rglob("*") if path.is_file()} == before


def test_a_record_of_another_version_names_the_version_to_install() -> None:
    with pytest.raises(NewerWriterError, match=r"Install version 9\.0\.0") as raised:
        Codec().decode(UNKNOWN, "9.0.0")
    assert (raised.value.writer, raised.value.schema) == ("9.0.0", bytes(reversed(range(8))).hex())


@pytest.mark.parametrize("writer", [None, installed_version()])
def test_a_schema_that_no_other_version_wrote_is_unknown(writer: str | None) -> None:
    with pytest.raises(UnknownSchemaError) as raised:
        Codec().decode(UNKNOWN, writer)
    assert type(raised.value) is UnknownSchemaError


def test_what_is_known_is_read_whoever_wrote_it() -> None:
    for name, version in BY_NAME.items():
        example = (AVRO_DIR / version.topic.name / f"{name}.example.bin").read_bytes()
        assert Codec().decode(example, "9.0.0") == Codec().decode(example)
