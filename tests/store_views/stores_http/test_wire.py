"""What goes over the wire: routes, bodies and statuses as Agent Lightning has them, and what is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from lightstream.store_views.stores import InMemoryLightningStore
from lightstream.store_views.stores.http import LightningStoreServer


def test_a_rollout_from_its_enqueueing_to_its_end(wire: httpx.Client) -> None:
    said = wire.post("/queues/rollouts/enqueue", json={"rollouts": [{"input": {"task": 1}, "mode": "train"}]})
    assert said.status_code == 201
    (rollout,) = said.json()
    assert rollout == rollout | {
        "input": {"task": 1},
        "mode": "train",
        "status": "queuing",
        "end_time": None,
        "resources_id": None,
        "config": {
            "timeout_seconds": None,
            "unresponsive_seconds": None,
            "max_attempts": 1,
            "retry_condition": [],
        },
    }
    rollout_id = rollout["rollout_id"]

    said = wire.post("/queues/rollouts/dequeue", json={"limit": 1, "worker_id": "w"})
    assert said.status_code == 200
    (taken,) = said.json()
    assert (taken["rollout_id"], taken["attempt"]["status"]) == (rollout_id, "preparing")
    attempt_id = taken["attempt"]["attempt_id"]

    assert wire.post("/spans/next", json={"rollout_id": rollout_id, "attempt_id": attempt_id}).json() == {
        "sequence_id": 1
    }
    span = a_span(rollout_id, attempt_id)
    said = wire.post("/spans", json=span)
    assert (said.status_code, said.json()["span_id"]) == (201, span["span_id"])
    said = wire.post("/spans", json=span)
    assert (said.status_code, said.json()) == (201, None), "it is there already"
    page = wire.get("/spans", params={"rollout_id": rollout_id, "attempt_id": "latest"}).json()
    assert {key: page[key] for key in ("limit", "offset", "total")} == {"limit": -1, "offset": 0, "total": 1}
    assert wire.post("/spans/search", json={"rollout_id": rollout_id, "name_contains": "wor"}).json() == page

    said = wire.post(f"/rollouts/{rollout_id}/attempts/{attempt_id}", json={"status": "succeeded"})
    assert (said.status_code, said.json()["status"]) == (200, "succeeded")
    (over,) = wire.post("/waits/rollouts", json={"rollout_ids": [rollout_id, "nobody"], "timeout": 0.0}).json()
    assert over["status"] == "succeeded"
    assert wire.get(f"/rollouts/{rollout_id}").json()["attempt"]["attempt_id"] == attempt_id
    assert wire.get(f"/rollouts/{rollout_id}/attempts/latest").json()["attempt_id"] == attempt_id
    assert wire.get(f"/rollouts/{rollout_id}/attempts").json()["total"] == 1
    assert wire.post(f"/rollouts/{rollout_id}/attempts/search", json={}).json()["total"] == 1


def test_bodies_that_may_be_missing(wire: httpx.Client) -> None:
    assert wire.post("/queues/rollouts/dequeue").json() == []
    assert wire.post("/workers/w1").json()["worker_id"] == "w1"
    started = wire.post("/rollouts", json={"input": None})
    assert started.status_code == 201
    again = wire.post(f"/rollouts/{started.json()['rollout_id']}/attempts", content=b"null")
    assert (again.status_code, again.json()["attempt"]["sequence_id"]) == (201, 2)


def test_queries_by_query_string(wire: httpx.Client) -> None:
    ids = [f"r{number}" for number in range(3)]
    wire.post("/queues/rollouts/enqueue", json={"rollouts": [{"input": 1, "rollout_id": each} for each in ids]})
    asked: dict[str, Any] = {"rollout_id_in": ["r0", "r2"], "sort_by": "rollout_id", "sort_order": "desc", "limit": 5}
    page = wire.get("/rollouts", params=asked).json()
    assert [rollout["rollout_id"] for rollout in page["items"]] == ["r2", "r0"]
    assert wire.get("/rollouts", params={"status_in": "succeeded"}).json()["total"] == 0
    assert wire.get("/workers", params={"status_in": ["idle", "busy"]}).json()["items"] == []


def test_resources(wire: httpx.Client) -> None:
    assert wire.get("/resources/latest").json() is None
    llm = {"resource_type": "llm", "endpoint": "http://llm/v1", "model": "m"}
    added = wire.post("/resources", json={"main": llm})
    assert added.status_code == 201
    assert wire.post("/resources/other", json={"main": llm}).json()["resources_id"] == "other"
    assert wire.get("/resources/latest").json()["resources_id"] == "other"
    assert wire.get(f"/resources/{added.json()['resources_id']}").json()["resources"]["main"]["model"] == "m"
    assert wire.get("/resources", params={"resources_id": "other"}).json()["total"] == 1


def test_what_does_not_exist(wire: httpx.Client) -> None:
    assert wire.get("/rollouts/nonexistent").json() is None
    assert wire.get("/workers/nonexistent").json() is None
    said = wire.post("/rollouts/nonexistent", json={"status": "failed"})
    assert (said.status_code, said.json()["detail"]) == (404, "Rollout nonexistent not found")
    assert said.json()["error_type"] == "NotFoundError"


@pytest.mark.parametrize(
    ("path", "body", "status", "named"),
    [
        ("/queues/rollouts/enqueue", b'{"rollouts": [', 422, "Invalid JSON"),
        ("/queues/rollouts/enqueue", b"", 422, "no body"),
        ("/queues/rollouts/enqueue", b'{"rollouts": [{"input": 1, "mode": "nonsense"}]}', 422, "mode"),
        (
            "/queues/rollouts/enqueue",
            b'{"rollouts": [{"input": 1}, {"config": {"max_attempts": 0}}]}',
            422,
            "max_attempts",
        ),
        ("/queues/rollouts/enqueue", b"[]", 422, "body"),
        ("/queues/rollouts/dequeue", b'{"timeout_s": NaN}', 422, "timeout_s"),
        ("/rollouts/search", b'{"limit": "many"}', 422, "limit"),
        ("/rollouts/search", b'{"sort_by": "nonsense"}', 400, "sort_by"),
        ("/spans", b'{"rollout_id": "r"}', 422, "attempt_id"),
        ("/rollouts/r0", b'{"status": null}', 400, "status"),
        ("/rollouts/r0", b'{"config": {"timeout_seconds": -1}}', 422, "timeout_seconds"),
        ("/rollouts/search", b'{"limit": 0}', 400, "limit is 0"),
        ("/rollouts/search", b'{"status_in": ["nonsense"]}', 422, "status_in"),
        ("/workers/search", b'{"status_in": ["nonsense"]}', 422, "status_in"),
        ("/spans/search", b'{"rollout_id": "r0", "filter_logic": "xor"}', 422, "filter_logic"),
        ("/rollouts/r0/attempts/search", b'{"sort_order": "up"}', 422, "'up'"),
        ("/rollouts/r0", b'{"status": "nonsense"}', 422, "status"),
        ("/rollouts/r0/attempts/latest", b'{"worker_id": 7}', 422, "worker_id"),
        ("/resources", b'{"main": {"resource_type": "rocket"}}', 422, "main"),
    ],
)
def test_bad_bodies_name_the_field_and_change_nothing(
    wire: httpx.Client, behind: InMemoryLightningStore, path: str, body: bytes, status: int, named: str
) -> None:
    wire.post("/queues/rollouts/enqueue", json={"rollouts": [{"input": 1, "rollout_id": "r0"}]})
    before = behind.history(), asyncio.run(behind.statistics()).get("total_resources")
    said = wire.post(path, content=body)
    assert said.status_code == status, said.text
    assert named in str(said.json()["detail"])
    assert (behind.history(), asyncio.run(behind.statistics()).get("total_resources")) == before


@pytest.mark.parametrize("path", ["/rollouts", "/rollouts/r0/attempts", "/spans", "/resources", "/workers"])
@pytest.mark.parametrize(
    ("field", "value", "status"), [("limit", "0", 400), ("sort_order", "up", 422), ("sort_by", "nonsense", 400)]
)
def test_query_strings_that_mean_nothing(wire: httpx.Client, path: str, field: str, value: str, status: int) -> None:
    said = wire.get(path, params={"rollout_id": "r0", field: value})
    assert said.status_code == status
    assert field in str(said.json()["detail"])


def test_paths_and_methods_that_are_not_there(server: LightningStoreServer, wire: httpx.Client) -> None:
    assert wire.get("/nonsense").status_code == 404
    said = wire.get("/waits/rollouts")
    assert (said.status_code, said.headers["allow"]) == (405, "POST")
    assert wire.get("/rollouts/%FF").status_code == 400
    said = httpx.post(f"{server.endpoint}/v1/traces", content=b"x", timeout=60)
    assert said.status_code == 501
    assert "OTLP" in said.json()["detail"]


def test_health_and_capabilities(wire: httpx.Client) -> None:
    assert wire.get("/health").json() == {"status": "ok"}
    assert wire.get("/capabilities").json()["otlp_traces"] is False
    assert wire.get("/statistics").json()["total_rollouts"] == 0


def a_span(rollout_id: str, attempt_id: str) -> dict[str, Any]:
    return {
        "rollout_id": rollout_id,
        "attempt_id": attempt_id,
        "sequence_id": 1,
        "trace_id": "0" * 31 + "1",
        "span_id": "0" * 15 + "1",
        "parent_id": None,
        "name": "work",
        "status": {"status_code": "OK", "description": None},
        "attributes": {"a": 1},
        "events": [],
        "links": [],
        "start_time": 1.0,
        "end_time": 2.0,
        "context": None,
        "parent": None,
        "resource": {"attributes": {}, "schema_url": ""},
    }
