"""The check for advisories: what fails it, and what it says where nothing was checked."""

import os
import subprocess
import sys
from pathlib import Path

from tools import audit

SOUND = {"name": "idna", "version": "3.20", "vulns": []}
UNKNOWN = {"name": "pip", "skip_reason": "not found"}
FAULTY = {
    "name": "h11",
    "version": "0.14.0",
    "vulns": [{"id": "PYSEC-2025-1", "fix_versions": ["0.16.0"]}],
}


def test_audit_fails_when_a_package_has_an_advisory() -> None:
    """The line names the release and the one to take."""
    expected = ("h11 0.14.0: PYSEC-2025-1, fixed in 0.16.0", 1)
    assert audit.result([SOUND, UNKNOWN, FAULTY]) == expected


def test_audit_names_packages_that_it_could_not_check() -> None:
    """A package that PyPI does not know is no reason to fail."""
    assert audit.result([SOUND, UNKNOWN]) == ("no known faults in 1 packages; not checked: pip", 0)


def test_audit_says_that_nothing_was_checked_when_the_index_has_no_advisories() -> None:
    """A mirror without advisories is not mistaken for good news."""
    sentence, status = audit.result([UNKNOWN])
    assert (sentence.startswith("NOT CHECKED"), status) == (True, 0)


def test_audit_says_that_nothing_was_checked_when_pypi_is_out_of_reach(tmp_path: Path) -> None:
    """A developer on a train can still run every check."""
    offline = {"https_proxy": "http://127.0.0.1:1", "UV_CACHE_DIR": str(tmp_path)}
    environment = {**os.environ, **offline, "UV_HTTP_RETRIES": "0"}
    command = [sys.executable, "-m", "tools.audit"]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    assert "NOT CHECKED, because PyPI cannot be reached" in done.stdout
