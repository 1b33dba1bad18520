"""A Schema Registry client: the two calls of the Confluent REST API that the codec needs.

Subjects follow ``TopicRecordNameStrategy`` (``<topic>-<namespace>.<Record>``), since a topic of ours may carry several
record types.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
from http import HTTPStatus
from typing import Any, TypeVar

from fastavro.schema import SchemaParseException

from lightstream.schemas.codec import Codec, SchemaIds
from lightstream.schemas.codec.avro_schema import NAMESPACE
from lightstream.schemas.codec.files import SchemaVersion, schema_fingerprint
from lightstream.schemas.errors import ServiceUnavailableError, UnknownSchemaError

from .http.client import send
from .settings import Settings

T = TypeVar("T", int, str)

REQUEST_TIMEOUT_S = 10.0
NEXT_STEP = (
    "Correct LIGHTSTREAM_SCHEMA_REGISTRY_URL and the settings beside it, or unset them to write without a registry."
)


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
        if settings.schema_registry_token is not None:
            self._headers["Authorization"] = f"Bearer {settings.schema_registry_token.get_secret_value()}"
        self._certificates = ssl.create_default_context(cafile=settings.schema_registry_ca_file)
        self._lock = threading.Lock()
        self._ids: dict[bytes, int] = {}
        self._fingerprints: dict[int, bytes] = {}

    def id_of(self, version: SchemaVersion) -> int:
        with self._lock:
            if version.fingerprint not in self._ids:
                subject = f"{version.topic.full_name(self._prefix)}-{NAMESPACE}.{version.record.__name__}"
                body = {"schema": json.dumps(version.schema)}
                self._ids[version.fingerprint] = self._field(f"/subjects/{subject}/versions", body, "id", int)
            return self._ids[version.fingerprint]

    def fingerprint_of(self, schema_id: int) -> bytes:
        with self._lock:
            if schema_id not in self._fingerprints:
                schema = self._field(f"/schemas/ids/{schema_id}", None, "schema", str)
                self._fingerprints[schema_id] = _fingerprint(schema, schema_id)
            return self._fingerprints[schema_id]

    def _field(self, path: str, body: dict[str, Any] | None, field: str, kind: type[T]) -> T:
        """The value under ``field`` in the answer."""
        try:
            value = self._answer(path, body)[field]
            if type(value) is kind:
                return value
            problem = f"{field} = {value!r:.100}"
        except (ValueError, KeyError, TypeError) as error:
            raise self._unavailable(f"answered {path} unlike a Schema Registry: {error!r}") from error
        raise self._unavailable(f"answered {path} unlike a Schema Registry: {problem}")

    def _answer(self, path: str, body: dict[str, Any] | None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        answer = send(
            "GET" if data is None else "POST",
            self._url + path,
            server=f"the Schema Registry at {self._url}",
            next_step=NEXT_STEP,
            timeout_s=REQUEST_TIMEOUT_S,
            certificates=self._certificates,
            headers=self._headers,
            content=data,
        )
        if answer.status_code == HTTPStatus.NOT_FOUND and body is None:
            raise UnknownSchemaError(path.rsplit("/", 1)[-1])
        if answer.is_error:
            raise self._unavailable(f"answered {answer.status_code} to {path}: {answer.content[:300]!r}")
        return answer.json()

    def _unavailable(self, problem: str) -> ServiceUnavailableError:
        return ServiceUnavailableError(f"the Schema Registry at {self._url} {problem}.", next_step=NEXT_STEP)


def _fingerprint(schema: str, schema_id: int) -> bytes:
    """Also of schemas that others registered, which may not be Avro or may name types defined elsewhere.

    Raises:
        UnknownSchemaError: it is such a schema.
    """
    try:
        return schema_fingerprint(json.loads(schema))
    except (ValueError, TypeError, KeyError, SchemaParseException) as error:
        raise UnknownSchemaError(str(schema_id)) from error
