"""``python -m lightstream.store_views``: the view server."""

from __future__ import annotations

import logging
import sys

from lightstream.schemas.errors import LightstreamError
from lightstream.schemas.settings import Settings

from .server import run

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        run(Settings.load())
    except LightstreamError as error:
        sys.exit(str(error))
