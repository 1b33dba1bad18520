"""OTLP requests to span records."""

from . import json, protobuf
from ._records import Decoded, Rejection

__all__ = ["Decoded", "Rejection", "json", "protobuf"]
