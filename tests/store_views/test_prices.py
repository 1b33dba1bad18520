"""Prices of models: the file of one's own, those that came with LiteLLM, and the table of the view."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lightstream.schemas.errors import SettingsError
from lightstream.store_views.materialiser.prices_table import PricesTable
from lightstream.store_views.prices import Price, bundled_prices, known_prices, read_prices, write_prices
from tests.store_views.log_file import LogFile
from tests.support.program import lightstream


def test_a_file_is_csv_or_what_litellm_publishes(tmp_path: Path) -> None:
    table = tmp_path / "prices.csv"
    table.write_text("\ufeffmodel,prompt_price,response_price,cached_price\nm, 1, 2,0.5\n\n# mine\nn,0,3,\n", "utf-8")
    assert read_prices(table) == {"m": Price("m", 1.0, 2.0, 0.5), "n": Price("n", 0.0, 3.0)}
    bare = tmp_path / "bare.csv"
    bare.write_text("m,1,2\n")
    assert read_prices(bare) == {"m": Price("m", 1.0, 2.0)}
    litellm = tmp_path / "models.json"
    entry = {"input_cost_per_token": 1.5e-07, "output_cost_per_token": 6e-07, "cache_read_input_token_cost": 7.5e-08}
    litellm.write_text(json.dumps({"sample_spec": entry, "m": entry, "image": {"output_cost_per_image": 1}}))
    assert read_prices(litellm) == {"m": Price("m", 0.15, 0.6, 0.075)}
    write_prices(table, [Price("a,b", 0.1, 1e-07)])
    assert read_prices(table) == {"a,b": Price("a,b", 0.1, 1e-07)}


@pytest.mark.parametrize("line", ["m", "m,1", "m,one,2", "m,-1,2", "m,nan,2", ",1,2", "m,1,2,3,4", "m,,1,2"])
def test_a_line_that_is_no_price_is_named(line: str, tmp_path: Path) -> None:
    file = tmp_path / "prices.csv"
    file.write_text(f"ok,1,2\n{line}\n")
    with pytest.raises(SettingsError, match=r"line 2 of .* is no price"):
        read_prices(file)


def test_a_given_price_is_that_of_the_versions_too() -> None:
    bundled = {name: Price(name, 9, 9) for name in ("m", "m-2024-07-18", "other")}
    known = known_prices({"m": Price("m", 1, 2)}, bundled)
    assert known == {"m": Price("m", 1, 2), "other": Price("other", 9, 9)}


def test_public_models_have_prices_without_litellm_being_imported() -> None:
    assert bundled_prices()["gpt-4o-mini"].prompt_price > 0
    program = (
        "import sys; from lightstream.store_views.prices import bundled_prices; bundled_prices(); "
        "sys.exit('litellm' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_table_follows_the_file(log: LogFile, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "prices.csv"
    table = PricesTable(file, look_interval_s=0)
    of_mine = "SELECT prompt_price, given FROM prices WHERE model = 'mine'"

    def follow() -> list[tuple[object, ...]]:
        table.follow(log.database)
        return log.rows(of_mine)

    assert follow() == []
    (public,) = log.rows("SELECT count(*) FROM prices WHERE NOT given")[0]
    assert public > 1000
    write_prices(file, [Price("mine", 1, 2)])
    assert follow() == [(1.0, True)]
    file.write_text("mine,one,two\n")
    assert follow() == [(1.0, True)]
    assert "is no price" in caplog.text
    file.unlink()
    assert follow() == []


def test_commands_set_load_and_remove_prices(tmp_path: Path) -> None:
    assert "in " in lightstream(tmp_path, "prices", "set", "mine", "--prompt", "1", "--response", "2").stdout
    more = tmp_path / "more.csv"
    more.write_text("yours,3,4,1\n")
    lightstream(tmp_path, "prices", "load", str(more))
    kept = tmp_path / "prices.csv"
    assert read_prices(kept) == {"mine": Price("mine", 1, 2), "yours": Price("yours", 3, 4, 1)}
    assert "yours" in lightstream(tmp_path, "prices").stdout
    lightstream(tmp_path, "prices", "remove", "mine")
    assert read_prices(kept) == {"yours": Price("yours", 3, 4, 1)}
    refused = lightstream(tmp_path, "prices", "remove", "mine")
    assert (refused.returncode, "no price of 'mine'" in refused.stderr) == (1, True)
