"""The page in a real browser: `make test-page`, which brings playwright.

`BROWSER` names the browser's program where it is not found by the names that Chromium and Chrome have.
"""

import importlib.util
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
if importlib.util.find_spec("playwright") is None:
    collect_ignore_glob = ["test_*.py"]


def program() -> str | None:
    """Return the browser to use; None leaves it to playwright, which may have brought one."""
    return os.environ.get("BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)


@pytest.fixture(scope="session")
def browser() -> Iterator:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        found = play.chromium.launch(executable_path=program(), args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def show(browser) -> Iterator[Callable]:
    """Open a page and fail at its end if it said anything on the console, or asked for anything but itself."""
    contexts, said, asked = [], [], []

    def open_page(where: Path | str, **options):
        contexts.append(browser.new_context(**options))
        tab = contexts[-1].new_page()
        tab.on("console", lambda message: said.append(message.text))
        tab.on("pageerror", lambda error: said.append(str(error)))
        url = where.as_uri() if isinstance(where, Path) else where
        tab.on(
            "request",
            lambda request: None if request.url.startswith(url) else asked.append(request.url),
        )
        tab.goto(url)
        tab.wait_for_selector("#episodes .row, #episodes .none")
        return tab

    yield open_page
    for context in contexts:
        context.close()
    assert said == [] and asked == []
