"""What log lines look like, whoever writes them."""

import json
import logging

import pytest

from forewarn.log_format import configure_logs


@pytest.mark.parametrize("name", ["forewarn.operator", "uvicorn.error", "asyncio"])
def test_log_line_follows_the_format(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A machine that reads our log meets no line of another form."""
    configure_logs("info", "json")
    logging.getLogger(name).warning("a word")
    line = json.loads(capsys.readouterr().err)
    assert (line["logger"], line["text"], line["level"]) == (name, "a word", "warning")
