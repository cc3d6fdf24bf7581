"""What is logged of calls that could not be answered."""

import logging

import pytest

from forewarn_server.api import refusal_log
from forewarn_server.api.auth import StateOutdated
from forewarn_server.api.refusal_log import RefusalLog
from forewarn_store.errors import StoreUnavailable


def test_each_reason_is_logged_once_a_minute_with_the_number_of_calls(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A process without its database refuses every list: that is one line."""
    now_ms = [0]
    refusals = RefusalLog(lambda: now_ms[0])
    away = StoreUnavailable(place="the store", reason="away")
    with caplog.at_level(logging.ERROR):
        for second in range(0, 61, 20):
            now_ms[0] = second * 1000
            refusals.note("GET /v1/vms", StateOutdated())
            refusals.note("GET /v1/hosts", away)
    lines = [each.getMessage() for each in caplog.records]
    assert [each.partition(":")[0] for each in lines] == ["GET /v1/vms", "GET /v1/hosts"] * 2
    assert [each.endswith("(2 calls before, too)") for each in lines] == [False] * 2 + [True] * 2


def test_number_of_reasons_is_limited(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The oldest is forgotten, and logged again."""
    monkeypatch.setattr(refusal_log, "REASONS_MAX", 2)
    refusals = RefusalLog(lambda: 0)
    for reason in ("a", "b", "c", "b", "a"):
        refusals.note("GET /", StoreUnavailable(place="the store", reason=reason))
    said = [each.getMessage().rpartition("used: ")[2] for each in caplog.records]
    assert said == ["a.", "b.", "c.", "a."]
