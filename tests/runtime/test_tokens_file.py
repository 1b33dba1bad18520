"""The file of tokens: what it may say, that it is read again, and that a mistake changes nothing."""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path

import pytest
from pydantic import SecretStr

from lightstream.runtime.clock import Clock
from lightstream.runtime.http.access import Access, access_of
from lightstream.runtime.http.own_tokens import token_of
from lightstream.runtime.http.tokens import TokensFile
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError

TOKEN = "s3cret"
DIGEST = hashlib.sha256(TOKEN.encode()).hexdigest()


def table(name: str = "a", digest: str = DIGEST, scopes: str = '["read"]', more: str = "") -> str:
    return f'[[token]]\nname = "{name}"\nsha256 = "{digest}"\nscopes = {scopes}\n{more}\n'


def written(path: Path, text: str) -> Path:
    """Written beside and renamed, as an editor does it: another file, whatever the clock's ticks."""
    beside = path.with_name("beside")
    beside.write_text(text)
    os.replace(beside, path)
    return path


class At(Clock):
    def __init__(self, now_s: float) -> None:
        self.now_s = now_s

    def now_unix_nano(self) -> int:
        return int(self.now_s * 1e9)


def test_a_token_has_its_scopes_until_it_expires(tmp_path: Path) -> None:
    clock = At(1_798_761_600 - 1)  # a second before 2027 in UTC
    text = table(scopes='["sql", "read"]', more="expires = 2027-01-01")
    tokens = TokensFile(written(tmp_path / "tokens.toml", text), clock)
    assert tokens.scopes_of(TOKEN.encode()) == frozenset({"read", "sql"})
    assert tokens.scopes_of(DIGEST.encode()) is None, "the digest is no token"
    assert tokens.scopes_of(b"") is None
    clock.now_s += 1
    assert tokens.scopes_of(TOKEN.encode()) is None


def test_it_is_read_again_and_a_mistake_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = written(tmp_path / "tokens.toml", table())
    tokens = TokensFile(file)
    written(file, table(scopes='["read", "sql"]'))
    assert tokens.scopes_of(TOKEN.encode()) == frozenset({"read", "sql"})
    with caplog.at_level(logging.ERROR):
        written(file, table() + "\n" + table(name="b", digest="0" * 64, scopes='["reed"]'))
        assert tokens.scopes_of(TOKEN.encode()) == frozenset({"read", "sql"}), "what was there before holds"
        assert tokens.scopes_of(TOKEN.encode()) == frozenset({"read", "sql"})
        file.unlink()
        assert tokens.scopes_of(TOKEN.encode()) == frozenset({"read", "sql"})
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.getMessage().count("line 10: 'reed' of 'b' is no scope") for record in errors] == [1, 0]
    assert TOKEN not in caplog.text
    written(file, table(name="b", digest="0" * 64))
    assert tokens.scopes_of(TOKEN.encode()) is None, "taken out"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (table().replace("[[token]]", "[token]"), "may have [[token]] alone"),
        ("[[tokens]]\n", "'tokens'"),
        (table() + "a = [", "line"),
        (table(more='scope = ["read"]'), "line 5: 'scope' is no field"),
        (table(digest=TOKEN), "line 3: sha256 of 'a'"),
        (table(scopes='"read"'), "line 4: 'a' needs scopes"),
        (table(scopes="[]"), "line 4: 'a' needs scopes"),
        (
            table(scopes='["read", "write"]'),
            "line 4: 'write' of 'a' is no scope; ingest, read, sql, control, feedback are",
        ),
        (table(more='expires = "tomorrow"'), "line 5: expires of 'a'"),
        (table() + table(name="b"), "line 8: 'b' has the token of another name"),
        (table(name=""), "line 2: a token needs a name"),
    ],
)
def test_a_mistake_names_its_line(tmp_path: Path, text: str, said: str) -> None:
    file = written(tmp_path / "tokens.toml", text)
    with pytest.raises(SettingsError) as raised:
        access_of(Settings.load(data_dir=tmp_path, tokens_file=file))
    assert said in str(raised.value)
    assert "LIGHTSTREAM_TOKENS_FILE" in str(raised.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nothing\.toml: it cannot be read"):
        TokensFile(tmp_path / "nothing.toml")


def test_single_tokens_mean_what_they_meant(tmp_path: Path) -> None:
    tokens = TokensFile(written(tmp_path / "tokens.toml", table()))
    access = Access("own", tokens=tokens)
    assert access.refusal("own", scopes=("control",)) is None
    assert access.refusal(TOKEN, scopes=("control",)) == 403
    assert access.refusal(TOKEN, scopes=("control", "read")) is None
    assert access.refusal("other", TOKEN, scopes=("read",)) is None, "a header and another one"
    assert access.refusal("other", scopes=("read",)) == 401
    assert access.refusal(scopes=("read",)) == 401
    assert not Access(tokens=tokens).is_open


def test_our_own_processes_of_one_folder_have_tokens_without_settings(tmp_path: Path) -> None:
    """Where a file asks for tokens; each server has another, and a folder others."""
    file = written(tmp_path / "tokens.toml", table())
    open_to_all = Settings.load(data_dir=tmp_path / "data")
    settings = open_to_all.model_copy(update={"tokens_file": file})
    assert token_of(open_to_all, "view_token") is None
    assert token_of(settings.model_copy(update={"view_token": SecretStr("mine")}), "view_token") == "mine"
    own = {token_of(settings, setting) for setting in ("proxy_token", "store_token", "view_token", "policy_token")}
    elsewhere = settings.model_copy(update={"data_dir": tmp_path / "other"})
    assert len(own | {token_of(elsewhere, "view_token"), None}) == 6
    view = token_of(settings, "view_token") or ""
    assert access_of(settings, token_of(settings, "view_token")).refusal(view, scopes={"control"}) is None
    assert access_of(settings, token_of(settings, "store_token")).refusal(view, scopes={"control"}) == 401
    assert [path.stat().st_mode & 0o777 for path in settings.data_dir.iterdir()] == [0o600]
