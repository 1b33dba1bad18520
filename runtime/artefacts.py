"""Files and folders that records refer to by address and digest. Each reader verifies the digest."""

from __future__ import annotations

import hashlib
import os
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from lightstream.schemas.errors import ArtefactError

from .http.client import reason_of
from .settings import Settings
from .tls import certificate_problem, client_context

PIECE_BYTES = 4 * 1024 * 1024
CONNECT_AND_READ_TIMEOUT_S = 60.0
"""Longest silence of a server during a download, which as a whole may take any time."""

FILES_MAX = 100_000
"""Most files of a folder: a checkpoint has tens, a data set thousands."""


def measure(path: Path) -> tuple[str, int]:
    """SHA-256 and size in bytes of a file, or of a folder.

    A folder's digest is that of its listing, one line ``<sha256 of the file>  <path>`` for each file, in the order of
    the paths as UTF-8 bytes, ``/`` between names: what ``sha256sum`` prints. Links to files count as these files.

    Raises:
        ArtefactError: there is nothing, or something that is neither a file nor a folder of files.
    """
    try:
        if path.is_dir():
            return _measure_folder(path)
        if path.is_file():
            return _digest(path)
    except OSError as error:
        raise ArtefactError(str(path), f"cannot be read: {error}.") from error
    problem = "is neither a file nor a folder." if path.exists() else "does not exist."
    raise ArtefactError(str(path), problem, next_step="Is the path the same on this machine?")


def resolve(url: str, sha256: str, size_bytes: int, cache_dir: Path | None = None) -> Path:
    """The artefact's path on this machine, after its digest was verified.

    Raises:
        ArtefactError: it cannot be fetched, or size or digest differ; a partial download is deleted.
    """
    try:
        parts = urllib.parse.urlsplit(url)
    except ValueError as error:
        raise ArtefactError(url, f"cannot be fetched: {reason_of(error)}.") from error
    if parts.scheme in ("http", "https"):
        return _fetched(url, sha256, size_bytes, cache_dir or Settings.load().cache_folder / "artefacts")
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        path = Path(urllib.request.url2pathname(parts.path))
    elif "://" not in url:
        path = Path(url)
    else:
        raise ArtefactError(
            url, f"cannot be fetched: {parts.scheme}: is not supported.", next_step="Use a path, file: or http(s):."
        )
    found = measure(path)
    _compare(url, found, (sha256, size_bytes))
    return path


def _fetched(url: str, sha256: str, size_bytes: int, cache_dir: Path) -> Path:
    """A file behind HTTP, kept under its digest, so that it is fetched once on a machine."""
    kept = cache_dir / sha256
    if kept.is_file() and _digest(kept) == (sha256, size_bytes):
        return kept
    cache_dir.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=cache_dir, suffix=".part")
    try:
        digest, received_bytes = hashlib.sha256(), 0
        with os.fdopen(handle, "wb") as file:
            for piece in _pieces(url):
                file.write(piece)
                digest.update(piece)
                received_bytes += len(piece)
                if received_bytes > size_bytes:
                    raise ArtefactError(url, f"has over {size_bytes:,} bytes, the size that the resource names.")
        _compare(url, (digest.hexdigest(), received_bytes), (sha256, size_bytes))
        os.replace(temporary, kept)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return kept


def _pieces(url: str) -> Iterator[bytes]:
    import httpx

    certificates = client_context(Settings.load())
    try:
        with (
            httpx.Client(verify=certificates, timeout=CONNECT_AND_READ_TIMEOUT_S, follow_redirects=True) as client,
            client.stream("GET", url, headers={"accept-encoding": "identity"}) as answer,
        ):
            if answer.is_error:
                status = f"{answer.status_code} {answer.reason_phrase}"
                raise ArtefactError(url, f"cannot be fetched: its server answers {status}.")
            yield from answer.iter_raw(PIECE_BYTES)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        problem = certificate_problem(error, url)
        if problem is not None:
            raise ArtefactError(url, f"cannot be fetched: {problem.message}", next_step=problem.next_step) from error
        raise ArtefactError(url, f"cannot be fetched: {error}.", next_step="Is its server running?") from error


def _measure_folder(path: Path) -> tuple[str, int]:
    listing = hashlib.sha256()
    size_bytes = 0
    for name, file in sorted(_files(path)):
        digest, file_bytes = _digest(file)
        listing.update(f"{digest}  ".encode() + name + b"\n")
        size_bytes += file_bytes
    return listing.hexdigest(), size_bytes


def _files(folder: Path) -> Iterator[tuple[bytes, Path]]:
    """Path in the folder as bytes, and the file."""
    count = 0
    for parent, folders, files in os.walk(folder, onerror=_raise):
        for name in folders:
            if (link := Path(parent, name)).is_symlink():
                raise ArtefactError(str(folder), f"has a link to a folder, {link}, which is not followed.")
        for name in files:
            file = Path(parent, name)
            if not file.is_file():
                raise ArtefactError(str(folder), f"has {file}, which is not a file.")
            count += 1
            if count > FILES_MAX:
                raise ArtefactError(str(folder), f"has over {FILES_MAX:,} files.", next_step="Pack them into one file.")
            yield os.fsencode(file.relative_to(folder).as_posix()), file


def _raise(error: OSError) -> None:
    raise error


def _digest(file: Path) -> tuple[str, int]:
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        return digest, stream.tell()


def _compare(url: str, found: tuple[str, int], named: tuple[str, int]) -> None:
    next_step = "It was changed or cut short since it was published; publish it again under a new address."
    if found[1] != named[1]:
        raise ArtefactError(url, f"has {found[1]:,} bytes; the resource names {named[1]:,}.", next_step=next_step)
    if found[0] != named[0]:
        raise ArtefactError(url, f"has the SHA-256 {found[0]}; the resource names {named[0]}.", next_step=next_step)
