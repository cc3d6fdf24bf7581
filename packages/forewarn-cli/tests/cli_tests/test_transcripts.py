"""A hundred and more commands: the right ones succeed, the wrong ones say what to do."""

import pytest

from cli_tests.transcripts import RIGHT, WRONG, transcripts
from forewarn_base import exit_codes
from tests.api.live import Live


def test_right_commands_succeed(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command of a tour through the command line ends with 0."""
    monkeypatch.setenv("FOREWARN_SERVER", live.url)
    failed = [each for each in transcripts(live.url, RIGHT) if each[1] != exit_codes.OK]
    assert not failed


def test_wrong_commands_say_what_to_do(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each mistake ends with a status, one sentence with its code, and advice."""
    monkeypatch.setenv("FOREWARN_SERVER", live.url)
    list(transcripts(live.url, RIGHT))
    for line, status, _, err in transcripts(live.url, WRONG):
        assert status in {exit_codes.USAGE, exit_codes.REFUSED, exit_codes.UNREACHABLE}, line
        sentence, advice = err.splitlines()
        assert sentence.startswith("forewarn: "), line
        assert sentence.endswith("]"), line
        assert advice.startswith("  "), line
