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
from http import HTTPStatus
from http.client import HTTPException
from typing import Any, TypeVar

from fastavro.schema import SchemaParseException

from lightstream.schemas.codec import Codec, SchemaIds
from lightstream.schemas.codec.avro_schema import NAMESPACE
from lightstream.schemas.codec.files import SchemaVersion, schema_fingerprint
from lightstream.schemas.errors import ServiceUnavailableError, UnknownSchemaError

from .settings import Settings

__all__ = ["SchemaRegistry", "codec_for"]

T = TypeVar("T", int, str)

REQUEST_TIMEOUT_S = 10.0


def codec_for(settings: Settings) -> Codec:
    """The codec that ``settings`` ask for: Confluent framing with a registry set, single-object framing without."""
    return Codec(None if settings.schema_registry_url is None else SchemaRegistry(settings))


class SchemaRegistry(SchemaIds):
    """A registry at ``settings.schema_registry_url``. Thread-safe; every answer is kept, since ids never change.

    Raises:
        ServiceUnavailableError: from any call, when the registry does not answer, refuses, or is not a registry.
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
                body = {"schema": json.dumps(version.schema)}
                self._ids[version.fingerprint] = self._said(f"/subjects/{subject}/versions", body, "id", int)
            return self._ids[version.fingerprint]

    def fingerprint_of(self, schema_id: int) -> bytes:
        with self._lock:
            if schema_id not in self._fingerprints:
                schema = self._said(f"/schemas/ids/{schema_id}", None, "schema", str)
                self._fingerprints[schema_id] = _fingerprint(schema, schema_id)
            return self._fingerprints[schema_id]

    def _said(self, path: str, body: dict[str, Any] | None, field: str, kind: type[T]) -> T:
        """The value under ``field`` in the answer."""
        try:
            value = self._answer(path, body)[field]
            if type(value) is kind:
                return value
            problem = f"{field} = {value!r:.100}"
        except (OSError, HTTPException) as error:
            raise self._unavailable(f"does not answer: {error!r}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise self._unavailable(f"answered {path} unlike a Schema Registry: {error!r}") from error
        raise self._unavailable(f"answered {path} unlike a Schema Registry: {problem}")

    def _answer(self, path: str, body: dict[str, Any] | None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data=data, headers=self._headers)  # noqa: S310  # the operator's own URL
        try:
            with urllib.request.urlopen(request, timeout=REQUEST_TIMEOUT_S) as response:  # noqa: S310  # as above
                return json.load(response)
        except urllib.error.HTTPError as error:
            if error.code == HTTPStatus.NOT_FOUND and body is None:
                raise UnknownSchemaError(path.rsplit("/", 1)[-1]) from error
            raise self._unavailable(f"answered {error.code} to {path}: {error.read()[:300]!r}") from error

    def _unavailable(self, problem: str) -> ServiceUnavailableError:
        return ServiceUnavailableError(
            f"the Schema Registry at {self._url} {problem}.",
            next_step="Correct LIGHTSTREAM_SCHEMA_REGISTRY_URL and LIGHTSTREAM_SCHEMA_REGISTRY_BASIC_AUTH, or unset "
            "them to write without a registry.",
        )


def _fingerprint(schema: str, schema_id: int) -> bytes:
    """Also of schemas that others registered, which may not be Avro or may name types defined elsewhere.

    Raises:
        UnknownSchemaError: it is such a schema.
    """
    try:
        return schema_fingerprint(json.loads(schema))
    except (ValueError, TypeError, KeyError, SchemaParseException) as error:
        raise UnknownSchemaError(str(schema_id)) from error
