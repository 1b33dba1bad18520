"""Write the Avro file and the example of each record that changed: ``make schemas``.

A released schema stays as it is: a changed record gets a next version, which may be rewritten until it is released.
With ``--release`` all versions that are not released yet are added to the list of those that are.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from ..distribution import installed_version, is_under_development
from ..examples import EXAMPLES
from ..topics import TOPICS
from .avro_schema import schema_of
from .codec import Codec
from .files import AVRO_DIR, RELEASED, canonical_form, released_schemas, schema_versions


def main(arguments: list[str]) -> None:
    """Print each file written. Under a version that is released no schema is added: exits, with nothing written."""
    if "--release" in arguments:
        _release()
        return
    released = released_schemas()
    written: dict[Path, bytes] = {}
    for topic in TOPICS:
        folder = AVRO_DIR / topic.name
        for record in topic.records:
            schema = schema_of(record)
            version = max(1, len(list(folder.glob(f"{record.__name__}.v*.avsc"))))
            path = folder / f"{record.__name__}.v{version}.avsc"
            changed = path.exists() and canonical_form(json.loads(path.read_text("utf-8"))) != canonical_form(schema)
            if changed and f"{record.__name__}.v{version}" in released:
                path = folder / f"{record.__name__}.v{version + 1}.avsc"
            if (changed or not path.exists()) and not is_under_development(installed_version()):
                sys.exit(
                    f"{record.__name__} has changed, but version {installed_version()} is released. Readers who meet a "
                    "new schema are told which version to install: set the next one in pyproject.toml, with `.dev0` at "
                    "its end, run `make install`, and then this again."
                )
            written[path] = (json.dumps(schema, indent=2) + "\n").encode()
    for path, content in written.items():
        _write(path, content)
    schema_versions.cache_clear()
    _write_examples()


def _release() -> None:
    """Add what is not released yet to the list, under the version that is installed."""
    released, version = released_schemas(), installed_version()
    if is_under_development(version):
        sys.exit(f"{version} is no release: set its number in pyproject.toml, run `make install`, and then this again.")
    new = {each.name: each.fingerprint[::-1].hex() for each in schema_versions() if each.name not in released}
    if new:
        lines = [f'["{version}"]', *(f'"{name}" = "{fingerprint}"' for name, fingerprint in sorted(new.items()))]
        _write(RELEASED, RELEASED.read_bytes() + ("\n" + "\n".join(lines) + "\n").encode())


def _write_examples() -> None:
    codec = Codec()
    latest = {version.record: version for version in schema_versions()}
    for example in EXAMPLES:
        version = latest[type(example)]
        _write(AVRO_DIR / version.topic.name / f"{version.name}.example.bin", codec.encode(example))


def _write(path: Path, content: bytes) -> None:
    if not path.exists() or path.read_bytes() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        print(path.relative_to(AVRO_DIR))


if __name__ == "__main__":
    main(sys.argv[1:])
