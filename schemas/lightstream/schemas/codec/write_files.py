"""Write the Avro file and the example of each record that changed: ``make schemas``.

Before the first release version 1 is rewritten; with ``--next`` a changed record gets a new version instead.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from ..examples import EXAMPLES
from ..topics import TOPICS
from .avro_schema import schema_of
from .codec import Codec
from .files import AVRO_DIR, canonical_form, schema_versions

__all__ = ["main"]


def main(arguments: list[str]) -> None:
    """Print each file written."""
    for topic in TOPICS:
        folder = AVRO_DIR / topic.name
        folder.mkdir(parents=True, exist_ok=True)
        for record in topic.records:
            schema = schema_of(record)
            version = max(1, len(list(folder.glob(f"{record.__name__}.v*.avsc"))))
            path = folder / f"{record.__name__}.v{version}.avsc"
            changed = path.exists() and canonical_form(json.loads(path.read_text("utf-8"))) != canonical_form(schema)
            if changed and "--next" in arguments:
                path = folder / f"{record.__name__}.v{version + 1}.avsc"
            _write(path, (json.dumps(schema, indent=2) + "\n").encode())
    _write_examples()


def _write_examples() -> None:
    codec = Codec()
    latest = {version.record: version for version in schema_versions()}
    for example in EXAMPLES:
        version = latest[type(example)]
        stem = AVRO_DIR / version.topic.name / f"{version.record.__name__}.v{version.version}"
        _write(stem.with_name(f"{stem.name}.example.bin"), codec.encode(example))


def _write(path: Path, content: bytes) -> None:
    if not path.exists() or path.read_bytes() != content:
        path.write_bytes(content)
        print(path.relative_to(AVRO_DIR))


if __name__ == "__main__":
    main(sys.argv[1:])
