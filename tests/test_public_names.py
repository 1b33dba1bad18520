"""``from lightstream import …``."""

from __future__ import annotations

import subprocess
import sys

import pytest

import lightstream
from lightstream.schemas.distribution import installed_version


def test_each_public_name_is_that_of_its_package() -> None:
    from lightstream import producers, trainers

    assert lightstream.__version__ == installed_version()
    names = [name for name in lightstream.__all__ if name != "__version__"]
    for name in names:
        assert getattr(lightstream, name) is getattr(trainers, name, None) or getattr(producers, name)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = lightstream.nothing


def test_the_agents_side_stays_light() -> None:
    program = "import sys; from lightstream import rollout, __version__; print('torch' in sys.modules)"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "False"
