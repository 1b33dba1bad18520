"""The dashboard is in the packages too: wheel and sdist."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from lightstream.store_views import server

pytestmark = pytest.mark.dashboard

ROOT = Path(__file__).parents[3]
PAGE = Path(server.__file__).with_name("page")
IN_WHEEL = "lightstream/store_views/server/page/"


def test_wheel_and_sdist_carry_the_built_pages(tmp_path: Path) -> None:
    built = {path.relative_to(PAGE).as_posix(): path.read_bytes() for path in PAGE.rglob("*") if path.is_file()}
    assert "index.html" in built
    assert any(name.endswith(".js") for name in built)
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([uv, "build", "--quiet", "--out-dir", tmp_path, ROOT], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    (sdist,) = tmp_path.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.startswith(IN_WHEEL)]
        assert {name.removeprefix(IN_WHEEL): archive.read(name) for name in names} == built
    with tarfile.open(sdist) as archive:
        in_sdist = f"{sdist.name.removesuffix('.tar.gz')}/{IN_WHEEL}"
        files = [file for file in archive.getmembers() if file.isfile() and file.name.startswith(in_sdist)]
        read = {file.name.removeprefix(in_sdist): archive.extractfile(file) for file in files}
        assert {name: file.read() for name, file in read.items() if file is not None} == built
