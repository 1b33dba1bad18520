"""Avro encoding of records."""

from .codec import Codec, SchemaIds
from .files import SchemaVersion, schema_versions
from .registry import SchemaRegistry, codec_for

__all__ = ["Codec", "SchemaIds", "SchemaRegistry", "SchemaVersion", "codec_for", "schema_versions"]
