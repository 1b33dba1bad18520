"""The widths that pages are tried at."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page

WIDTHS = (1440, 390)
at_each_width = pytest.mark.parametrize("sized", WIDTHS, indirect=True)


def expect_to_fit(page: Page, where: str = "") -> None:
    """Nothing of the page is wider than its window."""
    wide, window = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert wide <= window, where or page.url
