"""What log lines look like, whoever writes them."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from forewarn.log_format import LOGGERS, configure_logs


@pytest.fixture(autouse=True)
def _put_back() -> Iterator[None]:
    """Leave logging as it was."""
    found = [(each, each.handlers[:], each.level) for each in map(logging.getLogger, LOGGERS)]
    yield
    for logger, handlers, level in found:
        logger.handlers[:] = handlers
        logger.setLevel(level)
        logger.propagate = True


@pytest.mark.parametrize("name", ["forewarn.operator", "uvicorn.error", "asyncio"])
def test_log_line_follows_the_format(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A machine that reads our log meets no line of another form."""
    configure_logs("info", "json")
    logging.getLogger(name).warning("a word")
    line = json.loads(capsys.readouterr().err)
    assert (line["logger"], line["text"], line["level"]) == (name, "a word", "warning")
