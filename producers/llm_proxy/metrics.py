"""Series of the proxy: the time that it adds to a call, and answers of the model server."""

from __future__ import annotations

from prometheus_client import Counter, Histogram

ADDED_SECONDS = Histogram(
    "lightstream_proxy_added_seconds",
    "Time of a call besides waiting for the model server, up to its answer; of a stream, up to its beginning.",
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30),
)
UPSTREAM_ANSWERS = Counter(
    "lightstream_proxy_upstream_answers",
    "Answers of the model server, by status. 502: not reached, or lost; 503: none is known; 504: too slow.",
    ["status"],
)
