"""Approvals and times as bytes. Sections A and D-7."""

import contextlib
import datetime as dt
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn_base.protocol import timestamps
from forewarn_base.protocol.approvals import (
    APPROVAL_BYTES_MAX,
    ApprovalMalformed,
    ApprovalTooLarge,
    read_approval,
    render_approval,
)
from forewarn_base.protocol.documents import TimeUnreadable, format_not_before, parse_not_before
from forewarn_base.validation.durations import read_time_ms

IDS = st.lists(st.text(max_size=20), min_size=1, max_size=20).map(tuple)


@given(IDS, st.none() | st.integers(0, 2**53))
def test_approval_reads_back_upper_case_each_once(
    ids: tuple[str, ...], incarnation: int | None
) -> None:
    """Ids are compared without case and counted once; the incarnation is ignored. A-1, A-5."""
    body = render_approval(ids, incarnation)
    assert read_approval(body) == tuple(dict.fromkeys(each.upper() for each in ids))
    assert (b"DocumentIncarnation" in body) == (incarnation is not None)


@pytest.mark.parametrize(
    ("body", "ids"),
    [
        ('{"StartRequests":[{"EventId":"f020ba2e"}]}', ("F020BA2E",)),
        ('{"DocumentIncarnation":"5","StartRequests":[{"EventId":"A"}]}', ("A",)),
        ('{"StartRequests":[{"EventId":"a","EventType":"Freeze","x":[]},{"EventId":"A"}]}', ("A",)),
        ('\ufeff{"StartRequests":[{"EventId":"A"}]} ', ("A",)),
        ('{"StartRequests":[{"EventId":""}]}', ("",)),
        ('{"StartRequests":[{"EventId":"a\\ud800"}]}', ("A\\ud800",)),
    ],
)
def test_approval_in_odd_form_is_read(body: str, ids: tuple[str, ...]) -> None:
    """Unknown members are ignored, inside a StartRequest too. Source: A-5."""
    assert read_approval(body.encode()) == ids


@pytest.mark.parametrize(
    "body",
    [b"", b"x", b"[]", b"5", b'"x"', b"{}", b'{"StartRequests":null}', b'{"StartRequests":{}}',
     b'{"StartRequests":"x"}', b'{"StartRequests":[]}', b'{"StartRequests":[null]}',
     b'{"StartRequests":[{"EventId":null}]}', b'{"StartRequests":[{"EventId":["A"]}]}',
     b'{"StartRequests":[{"eventid":"A"}]}', b'{"StartRequests":[{"EventId":"A"},"B"]}',
     b"\xff", b"[" * 50_000, b'{"startrequests":[{"EventId":"A"}]}'],
    ids=range(18),
)  # fmt: skip
def test_malformed_approval_is_refused_whole(body: bytes) -> None:
    """All or nothing: one bad element refuses the approval. Source: A-2."""
    with pytest.raises(ApprovalMalformed) as caught:
        read_approval(body)
    assert caught.value.status == 400
    assert '{"StartRequests":' in caught.value.advice_text()


def test_approval_has_limits() -> None:
    """64 KiB and 100 requests, beyond it 413. Source: A-5."""
    hundred = render_approval(tuple(str(n) for n in range(100)))
    assert len(read_approval(hundred)) == 100
    for body in (
        render_approval(tuple(str(n) for n in range(101))),
        hundred.ljust(APPROVAL_BYTES_MAX + 1),
    ):
        with pytest.raises(ApprovalTooLarge) as caught:
            read_approval(body)
        assert caught.value.status == 413


@given(st.binary(max_size=200) | st.builds(json.dumps, st.lists(st.text())).map(str.encode))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    """Nothing else than an approval or a refusal comes of any bytes. Source: A-2."""
    with contextlib.suppress(ApprovalMalformed, ApprovalTooLarge):
        assert read_approval(body)


# Times.

MOMENTS = st.integers(-62_135_596_800, 253_402_300_799)  # the years 1 to 9999


@given(MOMENTS)
def test_not_before_is_rfc_1123_and_reads_back(second: int) -> None:
    """NotBefore is `Mon, 19 Sep 2016 18:29:47 GMT`, for any time. Source: D-7."""
    at = dt.datetime(1970, 1, 1) + dt.timedelta(seconds=second)  # noqa: DTZ001
    text = format_not_before(second * 1000 + 999)
    assert text == at.strftime(f"%a, %d %b {at.year:04} %H:%M:%S GMT")
    assert parse_not_before(text) == second * 1000


@given(MOMENTS, st.integers(0, 999))
def test_iso_8601_reads_back(second: int, milli: int) -> None:
    """A client also reads ISO 8601. Source: D-7."""
    at_ms = second * 1000 + milli
    at = dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=at_ms)  # noqa: DTZ001
    text = timestamps.iso8601(at_ms)
    assert text.removesuffix("Z") == at.isoformat(timespec="milliseconds" if milli else "seconds")
    assert parse_not_before(text) == at_ms


LOCAL = (dt.datetime(2, 1, 1), dt.datetime(9998, 1, 1))  # noqa: DTZ001
OFFSETS = st.integers(-23 * 60 - 59, 23 * 60 + 59)


@given(st.datetimes(*LOCAL), OFFSETS)
def test_iso_8601_is_read_with_its_offset_and_without_seconds(
    local: dt.datetime, minutes: int
) -> None:
    """Some tools write `2026-12-05T00:00Z`, some a local time with its offset. Source: D-7."""
    zone = dt.timezone(dt.timedelta(minutes=minutes))
    for spec in ("minutes", "seconds", "milliseconds"):
        text = local.replace(tzinfo=zone).isoformat(timespec=spec)
        at = dt.datetime.fromisoformat(text) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
        assert timestamps.parse(text) == at // dt.timedelta(milliseconds=1)
        assert read_time_ms(text, 0) == timestamps.parse(text)
    text = local.isoformat(timespec="minutes")
    assert timestamps.parse(f"{text}Z") == timestamps.parse(f"{text}:00+00:00")


@pytest.mark.parametrize(
    "text",
    [
        "2026-12-05T00:00+1:00",
        "2026-12-05T00:00+24:00",
        "2026-12-05T00:00+00:60",
        "2026-12-05T00:00--01:00",
        "2026-12-05T00:00Z+01:00",
        "2026-12-05T00:00+01:00+01:00",
        "2026-12-05T00:00.5Z",
        "2026-12-05T00Z",
        "2026-12-05Z",
    ],
)
def test_other_times_are_no_times(text: str) -> None:
    """Neither a document's nor an operator's. Source: D-7."""
    with pytest.raises(TimeUnreadable):
        parse_not_before(text)
    with pytest.raises(ValueError, match=r"\d"):
        read_time_ms(text, 0)


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [
        ("", None),
        ("  ", None),
        ("Mon, 19 Sep 2016 18:29:47 GMT", 1_474_309_787_000),
        ("19 sep 2016 18:29:47 UTC", 1_474_309_787_000),
        ("Mon, 19 Sep 2016 18:29:47 +0000", 1_474_309_787_000),
        ("2016-09-19T18:29:47Z", 1_474_309_787_000),
        ("2016-09-19t18:29:47.1234567z", 1_474_309_787_123),
        ("2016-09-19 18:29:47+00:00", 1_474_309_787_000),
        ("2016-09-19T18:29:47+0000", 1_474_309_787_000),
        ("2016-09-19T18:29Z", 1_474_309_740_000),
        ("2016-09-19T20:29:47+02:00", 1_474_309_787_000),
        (" " * 99 + "2016-09-19T18:29:47Z", 1_474_309_787_000),
    ],
)
def test_time_in_a_known_form_is_read(text: str, at_ms: int | None) -> None:
    """Both forms and their variants are read; empty means started. Source: D-7."""
    assert parse_not_before(text) == at_ms


@pytest.mark.parametrize(
    "text",
    ["x", "{timeInUTC}", "Mon, 19 Sep 2016", "Mon, 19 Xyz 2016 18:29:47 GMT", "2016-09-19",
     "Mon, 19 Sep 2016 18:29:47 CET", "2016-13-19T18:29:47Z", "2016-02-30T18:29:47Z",
     "2016-09-19T25:29:47Z", "2016-09-19T18:60:47Z", "2016-09-19T18:29:61Z",
     "20160-09-19T18:29:47Z", "٢016-09-19T18:29:47Z"],
)  # fmt: skip
def test_time_in_another_form_is_refused(text: str) -> None:
    """What names no possible UTC time is said to be unreadable. Source: D-7."""
    with pytest.raises(TimeUnreadable):
        parse_not_before(text)


def test_started_event_has_an_empty_not_before() -> None:
    """Never null, never absent. Source: D-7."""
    assert format_not_before(None) == ""
