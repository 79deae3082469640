"""A browser without a screen, for tests of pages."""

import contextlib
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

CHROMIUM = shutil.which("chromium")
NEEDED = pytest.mark.skipif(not CHROMIUM, reason="no chromium on this machine (apt-get install chromium)")


@contextlib.contextmanager
def started() -> Iterator[Browser]:
    """Start it for this block."""
    with sync_playwright() as kinds:
        browser = kinds.chromium.launch(executable_path=CHROMIUM)
        yield browser
        browser.close()
