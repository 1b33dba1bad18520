"""Write the Avro file of each record whose schema changed: ``python -m lightstream.schemas.codec.write_files``.

Before the first release version 1 is rewritten; with ``--next`` a changed record gets a new version instead.
"""

from __future__ import annotations

import json
import sys

from ..topics import TOPICS
from .avro_schema import schema_of
from .files import AVRO_DIR, canonical_form

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
            text = json.dumps(schema, indent=2) + "\n"
            if not path.exists() or path.read_text("utf-8") != text:
                path.write_text(text, "utf-8")
                print(path.relative_to(AVRO_DIR))


if __name__ == "__main__":
    main(sys.argv[1:])
