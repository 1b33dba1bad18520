"""Keeps the table ``prices`` as the file of prices is, which anybody may change while the view runs."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pyarrow as pa

from lightstream.schemas.errors import SettingsError

from ..prices import bundled_prices, known_prices, read_prices
from ..tables.kept import PRICES
from .database import ViewDatabase

logger = logging.getLogger(__name__)

LOOK_INTERVAL_S = 1.0
_TYPES = {"VARCHAR": pa.string(), "DOUBLE": pa.float64()}


class PricesTable:
    """For the one thread that writes.

    Args:
        path: the file, which may be missing.
        look_interval_s: seconds after which the file is looked at again.
    """

    def __init__(self, path: Path, *, look_interval_s: float = LOOK_INTERVAL_S) -> None:
        self._path = path
        self._look_interval_s = look_interval_s
        self._file_state: object = ()
        self._looked_s = 0.0
        self._bundled = bundled_prices()

    def follow(self, database: ViewDatabase) -> None:
        """Take the file's prices where it has changed since the last call. One that is no file of prices is logged, and
        the table stays as it was.

        Raises:
            duckdb.Error: the table cannot be written; it is unchanged.
        """
        now_s = time.monotonic()
        if self._file_state != () and now_s - self._looked_s < self._look_interval_s:
            return
        self._looked_s = now_s
        file_state = _state_of(self._path)
        if file_state == self._file_state:
            return
        first, self._file_state = self._file_state == (), file_state
        try:
            own_prices = {} if file_state is None else read_prices(self._path)
        except SettingsError as error:
            logger.warning("%s The view goes on with the prices that it has. %s", error.message, error.next_step)
            if not first:
                return
            own_prices = {}
        known = known_prices(own_prices, self._bundled)
        rows = [
            (price.model, price.prompt_price, price.response_price, price.cached_price, name in own_prices)
            for name, price in known.items()
        ]
        columns = list(zip(*rows, strict=True)) or [()] * len(PRICES.types)
        arrays = [
            pa.array(values, _TYPES.get(t, pa.bool_()))
            for values, t in zip(columns, PRICES.types.values(), strict=True)
        ]
        database.replace_rows(PRICES.name, pa.Table.from_arrays(arrays, names=list(PRICES.types)))


def _state_of(path: Path) -> tuple[int, int, int] | None:
    """What changes with the file's content; ``None`` where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
