"""`.ci/side` tries an installation three times, runs every target, and fails if one failed or cannot be installed."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TARGETS = ["exports", "loggers", "bridges", "suites", "real", "page"]
# Stands for make: it notes its first argument, and fails as often as the file that is named like it has lines.
MAKE = """#!/bin/sh
name=$(echo "$1" | tr / _)
echo "$1" >> calls
if [ -s "failures/$name" ]; then sed -i 1d "failures/$name"; exit 2; fi
"""

pytestmark = pytest.mark.skipif(
    not (ROOT / ".ci" / "side").exists(), reason="this is no source checkout"
)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with `.ci/side`, a stand-in for make, and programs that are found at once."""
    for folder in (".ci", "bin", "failures", ".venv/suites/bin"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(ROOT / ".ci" / "side", tmp_path / ".ci" / "side")
    programs = {
        "bin/make": MAKE,
        "bin/java": "#!/bin/sh\n",
        ".venv/suites/bin/turngym": '#!/bin/sh\necho "$*" >> calls\n',
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return tmp_path


def side(checkout: Path, *targets: str, **failures: int) -> tuple[int, list[str], list[str]]:
    """Run `.ci/side`; return its exit status, what make was called for, and the lines of its summary."""
    for name, count in failures.items():
        (checkout / "failures" / name).write_text("fails\n" * count)
    environment = {
        "PATH": f"{checkout / 'bin'}:{os.environ['PATH']}",
        "SIDE_PAUSE": "0",
        "BROWSER": "chromium",
    }
    done = subprocess.run(
        ["bash", ".ci/side", *targets],
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    summary = [line for line in done.stdout.splitlines() if " s installation " in line]
    return done.returncode, (checkout / "calls").read_text().splitlines(), summary


def test_every_target_of_the_list_is_installed_and_run(checkout: Path) -> None:
    status, calls, summary = side(checkout)
    assert status == 0 and [line.split()[0] for line in summary] == TARGETS
    assert all(line.endswith("passed") for line in summary)
    assert [call for call in calls if call.startswith(".venv/")] == [
        f".venv/{name}/.ready" for name in TARGETS
    ]
    counted = [call for call in calls if call.startswith("verify suites")]
    assert len(counted) == 1 and "--only bfcl" in counted[0]
    assert [call for call in calls if call.startswith("test-")] == [
        f"test-{name}" for name in TARGETS if name != "suites"
    ]


def test_a_download_that_fails_twice_is_no_failure(checkout: Path) -> None:
    status, calls, _ = side(checkout, "exports", **{".venv_exports_.ready": 2})
    assert status == 0 and calls == [".venv/exports/.ready"] * 3 + ["test-exports"]


def test_a_target_that_cannot_be_installed_fails_and_the_others_run(checkout: Path) -> None:
    status, calls, summary = side(checkout, "exports", "real", **{".venv_exports_.ready": 9})
    assert status == 1 and calls == [".venv/exports/.ready"] * 3 + [
        ".venv/real/.ready",
        "test-real",
    ]
    assert summary[0].endswith("NOT RUN: its installation failed 3 times") and summary[1].endswith(
        "passed"
    )


def test_only_the_browser_may_be_missing_and_the_summary_says_so(checkout: Path) -> None:
    status, calls, summary = side(checkout, "page", **{".venv_page_.ready": 3})
    assert status == 0 and "test-page" not in calls
    assert summary[0].endswith("NOT RUN: its installation failed 3 times")


def test_tests_that_fail_are_not_tried_again(checkout: Path) -> None:
    status, calls, summary = side(checkout, "loggers", "page", **{"test-loggers": 1})
    assert status == 1 and calls.count("test-loggers") == 1 and "test-page" in calls
    assert summary[0].endswith("FAILED") and summary[1].endswith("passed")
