"""Prices of models: LiteLLM's own, and a file of one's own, which counts before them.

The file is CSV (``model,prompt_price,response_price,cached_price``; per million tokens, the last may be left out), or
JSON as LiteLLM publishes it (``{model: {"input_cost_per_token": …, "output_cost_per_token": …}}``; per token). Nothing
is fetched.
"""

from __future__ import annotations

import csv
import importlib.util
import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any, cast

from lightstream.runtime.files import private_folder
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError
from lightstream.schemas.policy_names import model_family

COLUMNS = ("model", "prompt_price", "response_price", "cached_price")
PER = 1_000_000
"""Tokens that a price is for."""
_BUNDLED = "model_prices_and_context_window_backup.json"
_NEXT_STEP = (
    "Write a line such as `gpt-4o-mini,0.15,0.60`: model, price of a million prompt tokens, of response tokens."
)


@dataclass(frozen=True, slots=True)
class Price:
    """The cost of a million tokens of a model.

    Attributes:
        model: its name; one without a version is for all of its versions that have no price of their own.
        cached_price: of prompt tokens that the model server had in its cache; ``None``: as any others.
    """

    model: str
    prompt_price: float
    response_price: float
    cached_price: float | None = None


def prices_path(settings: Settings) -> Path:
    """The file of one's own prices; it may be missing."""
    return settings.prices_file or settings.data_dir / "prices.csv"


def read_prices(path: Path) -> dict[str, Price]:
    """The prices of a file, by model.

    Raises:
        SettingsError: it cannot be read, or a line of it is no price.
    """
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"the prices {path} cannot be read: {error}.", next_step=_NEXT_STEP) from error
    if text.lstrip().startswith("{"):
        try:
            return _of_litellm(json.loads(text))
        except (ValueError, RecursionError) as error:
            raise SettingsError(f"the prices {path} are not valid JSON: {error}.", next_step=_NEXT_STEP) from error
    return _of_csv(path, text)


def write_prices(path: Path, prices: Iterable[Price]) -> None:
    """Replace the file, as CSV; a reader sees the old one or the new one."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for price in prices:
        cached = "" if price.cached_price is None else repr(price.cached_price)
        writer.writerow([price.model, repr(price.prompt_price), repr(price.response_price), cached])
    private_folder(path.parent)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(text.getvalue(), "utf-8")
    os.replace(temporary, path)


def bundled_prices() -> dict[str, Price]:
    """Prices of public models, in US dollars, as the installed LiteLLM has them; empty where it is not installed.

    LiteLLM itself is not imported: it would ask the network for newer ones.
    """
    found = importlib.util.find_spec("litellm")
    folders = found.submodule_search_locations if found is not None else None
    files = [file for folder in folders or () if (file := Path(folder) / _BUNDLED).is_file()]
    return _of_litellm(json.loads(files[0].read_text("utf-8"))) if files else {}


def known_prices(given: Mapping[str, Price], bundled: Mapping[str, Price]) -> dict[str, Price]:
    """Both, by model. A given price of a model is that of its versions too, whatever is bundled for these."""
    return {**{name: price for name, price in bundled.items() if model_family(name) not in given}, **given}


def _of_csv(path: Path, text: str) -> dict[str, Price]:
    prices: dict[str, Price] = {}
    for number, row in enumerate(csv.reader(StringIO(text)), start=1):
        cells = [cell.strip() for cell in row]
        if not any(cells) or cells[0].startswith("#") or (not prices and cells[:1] == ["model"]):
            continue
        if len(cells) == len(COLUMNS) and not cells[-1]:
            cells.pop()
        amounts = [_amount(cell) for cell in cells[1:]]
        if not cells[0] or len(amounts) not in (2, 3) or None in amounts:
            raise SettingsError(f"line {number} of {path} is no price: {','.join(row)[:200]!r}.", next_step=_NEXT_STEP)
        prices[cells[0]] = Price(cells[0], *cast("list[float]", amounts))
    return prices


def _amount(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _of_litellm(models: Any) -> dict[str, Price]:
    """Those that are paid for by token."""
    prices: dict[str, Price] = {}
    for name, entry in models.items() if isinstance(models, dict) else ():
        if not isinstance(entry, dict) or name == "sample_spec":
            continue
        prompt, response, cached = (_per_million(entry.get(key)) for key in _LITELLM)
        if prompt is not None and response is not None:
            prices[name] = Price(name, prompt, response, cached)
    return prices


_LITELLM = ("input_cost_per_token", "output_cost_per_token", "cache_read_input_token_cost")


def _per_million(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        return None
    return round(value * PER, 9)
