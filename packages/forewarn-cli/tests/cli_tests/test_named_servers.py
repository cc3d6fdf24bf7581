"""Contexts: services by name."""

from pathlib import Path

import pytest

from forewarn_base.exit_codes import OK, UNREACHABLE, USAGE
from tests.api.live import Live
from tests.cli.conftest import Run


@pytest.fixture(autouse=True)
def settings_of_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory of its own for the user's settings."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def test_current_context_is_used_without_a_server(
    run: Run, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first context is used, then the one that was chosen."""
    monkeypatch.delenv("FOREWARN_SERVER")
    run("context", "add", "test", "--server", live.url)
    run("context", "add", "other", "--server", "127.0.0.1:1")
    assert run("host", "list").status == OK
    run("context", "use", "other")
    assert run("host", "list").status == UNREACHABLE
    assert run("host", "list", "--server", live.url).status == OK


def test_context_has_an_address(run: Run) -> None:
    """An address that no command could use is refused at once."""
    refused = run("context", "add", "bad", "--server", "ftp://x")
    assert refused.status != OK
    assert "is not an address" in refused.err
    assert run("context", "list", "--json").json["contexts"] == []


def test_environment_goes_before_the_context(run: Run) -> None:
    """FOREWARN_SERVER is more specific than the user's context."""
    run("context", "add", "other", "--server", "127.0.0.1:1")
    assert run("host", "list").status == OK


def test_token_of_a_context_is_for_its_server_only(run: Run, tmp_path: Path, live: Live) -> None:
    """Another server never sees the token, so a file that is gone does not matter."""
    gone = str(tmp_path / "gone")
    run("context", "add", "other", "--server", "127.0.0.1:1", "--token-file", gone)
    assert run("host", "list", "--server", live.url).status == OK


def test_contexts_are_readable_by_their_user_alone(run: Run, tmp_path: Path) -> None:
    """The file names files with tokens."""
    run("context", "add", "test", "--server", "127.0.0.1:1")
    assert (tmp_path / "forewarn" / "contexts.json").stat().st_mode & 0o077 == 0


def test_unknown_context_is_refused_with_a_suggestion(run: Run) -> None:
    """A mistyped name changes nothing."""
    run("context", "add", "production", "--server", "127.0.0.1:1")
    refused = run("context", "use", "prodction")
    assert refused.status == USAGE
    assert "Did you mean production?" in refused.err


def test_malformed_file_is_named(run: Run, tmp_path: Path) -> None:
    """A file that another program wrote is an error, and no traceback."""
    (tmp_path / "forewarn").mkdir()
    (tmp_path / "forewarn" / "contexts.json").write_text("[]")
    assert "contexts-unreadable" in run("context", "list").err
