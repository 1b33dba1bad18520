"""A Schema Registry client: the two calls of the Confluent REST API that the codec needs.

Subjects follow ``TopicRecordNameStrategy`` (``<topic>-<namespace>.<Record>``), since a topic of ours may carry several
record types.
"""

from __future__ import annotations

import base64
import json
import threading
import urllib.error
import urllib.request
from typing import Any

from ..errors import ServiceUnavailableError, UnknownSchemaError
from ..settings import Settings
from .avro_schema import NAMESPACE
from .codec import Codec, SchemaIds
from .files import SchemaVersion, schema_fingerprint

__all__ = ["SchemaRegistry", "codec_for"]

REQUEST_TIMEOUT_S = 10.0
NOT_FOUND_STATUS = 404


def codec_for(settings: Settings) -> Codec:
    """The codec that ``settings`` ask for: Confluent framing with a registry set, single-object framing without."""
    return Codec(None if settings.schema_registry_url is None else SchemaRegistry(settings))


class SchemaRegistry(SchemaIds):
    """A registry at ``settings.schema_registry_url``. Thread-safe; every answer is kept, since ids never change.

    Raises:
        ServiceUnavailableError: from any call, when the registry does not answer or refuses.
    """

    def __init__(self, settings: Settings) -> None:
        self._url = (settings.schema_registry_url or "").rstrip("/")
        self._prefix = settings.topic_prefix
        self._headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
        if settings.schema_registry_basic_auth is not None:
            token = base64.b64encode(settings.schema_registry_basic_auth.get_secret_value().encode()).decode()
            self._headers["Authorization"] = f"Basic {token}"
        self._lock = threading.Lock()
        self._ids: dict[bytes, int] = {}
        self._fingerprints: dict[int, bytes] = {}

    def id_of(self, version: SchemaVersion) -> int:
        with self._lock:
            if version.fingerprint not in self._ids:
                subject = f"{version.topic.full_name(self._prefix)}-{NAMESPACE}.{version.record.__name__}"
                answer = self._call(f"/subjects/{subject}/versions", {"schema": json.dumps(version.schema)})
                self._ids[version.fingerprint] = int(answer["id"])
            return self._ids[version.fingerprint]

    def fingerprint_of(self, schema_id: int) -> bytes:
        with self._lock:
            if schema_id not in self._fingerprints:
                answer = self._call(f"/schemas/ids/{schema_id}", None)
                self._fingerprints[schema_id] = schema_fingerprint(json.loads(answer["schema"]))
            return self._fingerprints[schema_id]

    def _call(self, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data=data, headers=self._headers)  # noqa: S310  # the operator's own URL
        try:
            with urllib.request.urlopen(request, timeout=REQUEST_TIMEOUT_S) as response:  # noqa: S310  # as above
                answer: dict[str, Any] = json.load(response)
                return answer
        except urllib.error.HTTPError as error:
            if error.code == NOT_FOUND_STATUS and body is None:
                raise UnknownSchemaError(path.rsplit("/", 1)[-1]) from error
            raise ServiceUnavailableError(
                f"the Schema Registry at {self._url} answered {error.code} to {path}: {error.read()[:300]!r}."
            ) from error
        except OSError as error:
            raise ServiceUnavailableError(
                f"the Schema Registry at {self._url} does not answer: {error}.",
                next_step="Correct LIGHTSTREAM_SCHEMA_REGISTRY_URL, or unset it to write without a registry.",
            ) from error
