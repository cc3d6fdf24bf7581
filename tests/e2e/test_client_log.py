"""The checker of clients' histories sees what a sound service never answers."""

import pytest

from tests.e2e.client_log import Approval, ClientLog, Read, Shown, event_of

NOTICE_MS = Shown("Scheduled").notice_ms
DUE_MS = 10 * NOTICE_MS
SCHEDULED = Shown("Scheduled", DUE_MS)
STARTED = Shown("Started")


def read(vm: str, at_ms: int, incarnation: int, **events: Shown) -> Read:
    """Return a read that takes ten milliseconds."""
    return Read(vm, at_ms, at_ms + 10, incarnation, events)


SOUND = (read("web_0", 0, 1), read("web_1", 20, 2, e=SCHEDULED), read("web_0", 40, 2, e=SCHEDULED))
APPROVED = (Approval("web_1", "e", 50, 200),)


def test_sound_history_is_accepted() -> None:
    """A start that was approved, and a read that overlaps with a newer one. Source: L-1, D-1."""
    reads = [*SOUND, read("web_0", 65, 3, e=STARTED), read("web_1", 70, 2, e=SCHEDULED)]
    assert ClientLog([*reads, read("web_0", 90, 4)], [*APPROVED]).violations() == []


@pytest.mark.parametrize(
    ("reads", "approvals", "said"),
    [
        ((read("web_1", 60, 1),), APPROVED, "after 2 was read"),
        ((read("web_0", 60, 3), read("web_0", 80, 4, e=SCHEDULED)), APPROVED, "which had gone"),
        ((read("web_0", 60, 3, e=STARTED),), (), "nobody approved"),
        (
            (read("web_0", 60, 3, e=STARTED), read("web_0", 80, 4, e=SCHEDULED)),
            APPROVED,
            "after Started",
        ),
        ((read("web_0", 60, 3, e=Shown("Scheduled", DUE_MS - 1)),), (), "an earlier NotBefore"),
        ((read("web_0", 60, 3, f=Shown("Scheduled", NOTICE_MS - 2000)),), (), "too late"),
        ((), (Approval("db_0", "e", 60, 200),), "never shown"),
    ],
    ids=["stale", "returned", "early", "back", "earlier", "short", "foreign"],
)
def test_unsound_history_is_refused(
    reads: tuple[Read, ...], approvals: tuple[Approval, ...], said: str
) -> None:
    """Each rule is told apart by what a client saw. Source: D-1, L-1, N-1, A-3."""
    [found] = ClientLog([*SOUND, *reads], [*approvals]).violations()
    assert said in found


def test_not_before_is_read_from_the_wire() -> None:
    """RFC 1123 in UTC, empty once it has started. Source: D-5."""
    form = {"EventStatus": "Scheduled", "NotBefore": "Thu, 01 Jan 1970 00:00:02 GMT"}
    assert event_of(form) == Shown("Scheduled", 2000)
    assert event_of({"EventStatus": "Started", "NotBefore": ""}) == STARTED
