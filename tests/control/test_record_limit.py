"""The audit records that one principal's calls without a change may have. Source: P-7."""

from forewarn_base.audit_chain import CallRecord
from forewarn_server.control.record_limit import COUNTED_MS, RecordLimit

NOW_MS = 1_800_000_000_000


def admitted(limit: RecordLimit, principal: str, count: int, now_ms: int) -> int:
    """Return how many of some calls are recorded."""
    call = CallRecord(now_ms, principal, "192.0.2.1", "POST /v1/reload", "", "not-permitted")
    return sum(limit.admits(call, now_ms) for _ in range(count))


def test_room_returns_with_time() -> None:
    """A hundred at once, then ten a minute; others have room of their own."""
    limit = RecordLimit()
    assert admitted(limit, "mallory", 500, NOW_MS) == 100
    assert admitted(limit, "eve", 5, NOW_MS) == 5
    assert admitted(limit, "mallory", 500, NOW_MS + 60_000) == 10
    assert admitted(limit, "mallory", 500, NOW_MS + 3_600_000) == 100


def test_strangers_share_one_room() -> None:
    """Many addresses do not fill the store either."""
    assert admitted(RecordLimit(), "", 5000, NOW_MS) == 1000


def test_clock_that_is_set_back_closes_no_room() -> None:
    """A principal is not left out until the clock is where it was."""
    limit = RecordLimit()
    admitted(limit, "mallory", 101, NOW_MS)
    assert admitted(limit, "mallory", 1, NOW_MS - 86_400_000) == 1
    assert [each.object for each in limit.due(NOW_MS - 86_400_000)] == ["1 calls"]


def test_calls_are_counted_once() -> None:
    """A minute after the first, and at the end of the service."""
    limit = RecordLimit()
    admitted(limit, "mallory", 103, NOW_MS)
    assert limit.due(NOW_MS + COUNTED_MS - 1) == []
    assert [each.object for each in limit.due(NOW_MS + COUNTED_MS)] == ["3 calls"]
    assert limit.due(NOW_MS + COUNTED_MS) == []
    admitted(limit, "mallory", 12, NOW_MS + COUNTED_MS)
    assert [each.object for each in limit.due()] == ["2 calls"]
