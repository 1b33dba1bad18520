"""Avro encoding of records."""

from .codec import Codec, SchemaIds
from .files import SchemaVersion, schema_versions

__all__ = ["Codec", "SchemaIds", "SchemaVersion", "schema_versions"]
