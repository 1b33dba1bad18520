"""Large things by address: what is used is what was published, or an error."""

from __future__ import annotations

import functools
import subprocess
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from lightstream.schemas.errors import ArtefactError
from lightstream.schemas.types import Artefact


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files, one of them by a link, as model caches have them."""
    made = tmp_path / "checkpoint"
    (made / "deep").mkdir(parents=True)
    (made / "config.json").write_text("{}")
    (tmp_path / "blob").write_bytes(b"weights")
    (made / "deep" / "weights.bin").symlink_to(tmp_path / "blob")
    return made


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    """A server of the files in ``tmp_path``."""
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_file(tmp_path: Path) -> None:
    file = tmp_path / "adapter é.bin"
    file.write_bytes(b"x" * 100)
    artefact = Artefact.of(file)
    assert artefact.size_bytes == 100
    assert artefact.resolve() == file
    assert Artefact.of(file, url=file.as_uri()).resolve() == file
    file.write_bytes(b"x" * 99)
    with pytest.raises(ArtefactError, match=r"has 99 bytes; the resource names 100\. It was changed or cut short"):
        artefact.resolve()
    file.write_bytes(b"y" * 100)
    with pytest.raises(ArtefactError, match=rf"has the SHA-256 \w+; the resource names {artefact.sha256}"):
        artefact.resolve()
    file.unlink()
    with pytest.raises(ArtefactError, match="does not exist"):
        artefact.resolve()


def test_a_folder(folder: Path) -> None:
    artefact = Artefact.of(folder)
    assert artefact.size_bytes == 9
    assert artefact.resolve() == folder
    listed = subprocess.run(
        ["sh", "-c", "find -L . -type f -printf '%P\\n' | LC_ALL=C sort | xargs sha256sum | sha256sum"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert listed.stdout.split()[0] == artefact.sha256
    (folder / "more").touch()
    with pytest.raises(ArtefactError, match="has the SHA-256"):
        artefact.resolve()
    (folder / "more").unlink()
    (folder / "config.json").rename(folder / "other.json")
    with pytest.raises(ArtefactError, match="has the SHA-256"):
        artefact.resolve()


def test_a_folder_that_is_none(folder: Path, tmp_path: Path) -> None:
    (folder / "loop").symlink_to(folder)
    with pytest.raises(ArtefactError, match="link to a folder"):
        Artefact.of(folder)
    (folder / "loop").unlink()
    (folder / "gone").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ArtefactError, match="which is not a file"):
        Artefact.of(folder)


def test_a_url(tmp_path: Path, web: str) -> None:
    file = tmp_path / "adapter.bin"
    file.write_bytes(b"x" * 5_000_000)
    cache = tmp_path / "cache"
    artefact = Artefact.of(file, url=f"{web}/adapter.bin")
    first = artefact.resolve(cache)
    assert first.read_bytes() == file.read_bytes()
    file.unlink()
    assert artefact.resolve(cache) == first, "fetched once on a machine"
    first.write_bytes(b"spoilt")
    with pytest.raises(ArtefactError, match=r"cannot be fetched: its server answers 404"):
        artefact.resolve(cache)
    file.write_bytes(b"x" * 5_000_000)
    assert artefact.resolve(cache).read_bytes() == file.read_bytes()


@pytest.mark.parametrize(("found", "problem"), [(b"x" * 9, "9 bytes"), (b"x" * 11, "over 10"), (b"y" * 10, "SHA-256")])
def test_a_url_that_holds_something_else(tmp_path: Path, web: str, found: bytes, problem: str) -> None:
    file = tmp_path / "adapter.bin"
    file.write_bytes(b"x" * 10)
    artefact = Artefact.of(file, url=f"{web}/adapter.bin")
    file.write_bytes(found)
    with pytest.raises(ArtefactError, match=problem):
        artefact.resolve(tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == [], "nothing of it stays"


@pytest.mark.parametrize("url", ["s3://bucket/x", "file://elsewhere/x", "http://127.0.0.1:9/x", "http://[/x"])
def test_addresses_that_cannot_be_had(tmp_path: Path, url: str) -> None:
    with pytest.raises(ArtefactError, match="cannot be fetched") as error:
        Artefact(url=url, sha256="0" * 64, size_bytes=1).resolve(tmp_path)
    assert error.value.url == url
