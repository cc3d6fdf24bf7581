"""The stories, each of which checks a duty of a client.

`client_trial.py` starts the client and waits for its actions.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from statistics import median

from forewarn_base.protocol.timestamps import iso8601
from forewarn_base.protocol.versions import ADVISORY_STATUS, VERSIONS
from forewarn_base.values import value
from forewarn_conformance.checks import ConformanceFault, NotApplicable
from forewarn_conformance.client_server import NEIGHBOUR, replaced, started
from forewarn_conformance.client_trial import POLLS_QUIET, ClientTrial

Play = Callable[[ClientTrial], None]

#: Number of polls whose intervals are measured.
POLLS_MEASURED = 9
#: Shortest permitted median interval of polls, in ms: just below the limit of E-6.
GAP_MS_MIN = 180
#: Shortest notice, in seconds: that of a Preempt. Source: N-1.
NOTICE_S_MIN = 30
#: Difference between the clocks of service and client, in ms.
CLOCKS_MS = 600_000
#: Longest permitted interval of polls, in seconds: half of the shortest notice, 30 s.
GAP_S_MAX = 15.0


@value
class Story:
    """A story: a sequence of events and faults, with checks of the client."""

    name: str
    statement: str
    title: str
    play: Play


STORIES: list[Story] = []


def _story(name: str, statement: str, title: str) -> Callable[[Play], None]:
    def register(play: Play) -> None:
        STORIES.append(Story(name, statement, title, play))

    return register


# --- normal operation ---------------------------------------------------------------------------


@_story("quiet", "C-1", "the client polls about once a second while nothing happens")
def _quiet(trial: ClientTrial) -> None:
    trial.start()
    polls_ms = trial.server.seen.polls_ms
    while len(polls_ms) < POLLS_MEASURED:
        number = len(polls_ms)
        trial.wait_next_poll(number, min(GAP_S_MAX, trial.options.patience_s))
    gaps_ms = [after - before for before, after in pairwise(polls_ms)]
    if median(gaps_ms) < GAP_MS_MIN:
        raise ConformanceFault(f"the client polls too often: every {median(gaps_ms):.0f} ms")


@_story("life", "C-2", "the client prepares, approves, and recovers once the event is over")
def _life(trial: ClientTrial) -> None:
    trial.start()
    event = trial.announce()
    trial.wait_approved(event)
    trial.begin(event)
    trial.wait_polls(POLLS_QUIET)
    trial.refuse_recovered(event)
    trial.server.show()
    trial.wait_recovered(event)


@_story("follow-on", "C-6", "the next event follows at once")
def _follow_on(trial: ClientTrial) -> None:
    trial.start()
    first = trial.announce()
    trial.wait_approved(first)
    trial.begin(first)
    trial.wait_polls(2)
    trial.wait_approved(trial.announce())


@_story("another", "C-3", "the client ignores an event that names only another VM")
def _another(trial: ClientTrial) -> None:
    trial.start()
    theirs = trial.server.event(NEIGHBOUR)
    trial.server.show(theirs)
    trial.wait_polls(POLLS_QUIET)
    if trial.prepared(theirs):
        raise ConformanceFault("the client prepared for an event that names only another VM")


@_story("together", "C-3", "the client approves only its own event of two events")
def _together(trial: ClientTrial) -> None:
    trial.start()
    trial.wait_approved(trial.announce(trial.server.event(NEIGHBOUR)))
    trial.wait_polls(POLLS_QUIET)


@_story("at-once", "C-6", "an event appears as Started; the next event is announced")
def _at_once(trial: ClientTrial) -> None:
    trial.start()
    trial.server.show(started(trial.server.event()))
    trial.wait_polls(POLLS_QUIET)
    trial.server.show()
    trial.wait_polls(2)
    trial.wait_approved(trial.announce())


@_story("failure", "C-10", "an event appears as Started; the client recovers once it is over")
def _failure(trial: ClientTrial) -> None:
    trial.start()
    event = trial.begin(trial.server.event())
    trial.wait_polls(POLLS_QUIET)
    trial.refuse_recovered(event)
    trial.server.show()
    trial.wait_recovered(event)
    trial.wait_polls(2 + POLLS_QUIET)
    trial.refuse_second_recovery(event)


@_story("withdrawn", "C-6", "an event is withdrawn before it is approved")
def _withdrawn(trial: ClientTrial) -> None:
    trial.start()
    trial.server.set_fault("POST", "503")
    event = trial.announce()
    trial.wait_posted(event)
    trial.server.show()
    trial.server.set_fault("POST", "")
    trial.wait_polls(2)
    trial.wait_recovered(event)
    trial.wait_polls(2 + POLLS_QUIET)


@_story("postponed", "C-2", "NotBefore of an approved event changes")
def _postponed(trial: ClientTrial) -> None:
    trial.start()
    event = trial.announce()
    trial.wait_approved(event)
    trial.postpone(event)
    trial.wait_polls(POLLS_QUIET)
    trial.refuse_second_preparation(event)


@_story("moving", "C-2", "the incarnation grows although no event changes")
def _moving(trial: ClientTrial) -> None:
    trial.start()
    event = trial.announce()
    trial.wait_approved(event)
    for _ in range(POLLS_QUIET):
        trial.server.show(event)
        trial.wait_polls(1)
    trial.refuse_second_preparation(event)


@_story("back", "C-7", "the incarnation goes back to 1")
def _back(trial: ClientTrial) -> None:
    trial.server.show(incarnation=41)
    trial.start()
    trial.wait_polls(2)
    event = trial.server.event()
    trial.server.show(event, incarnation=1)
    trial.wait_approved(event)


@_story("iso-time", "D-7", "NotBefore is written as ISO 8601")
def _iso_time(trial: ClientTrial) -> None:
    trial.start()
    event = trial.server.event()
    assert event.not_before_ms is not None, "a new event is scheduled"
    instead = f'"NotBefore":"{iso8601(event.not_before_ms)}"'
    trial.server.edit = (rb'"NotBefore":"[^"]+"', instead.encode())
    trial.server.show(event)
    trial.wait_approved(event)


@_story(
    "unknown", "C-2", "an event of an unknown type, with additional fields, beside a known event"
)
def _unknown(trial: ClientTrial) -> None:
    trial.start()
    trial.server.edit = (b'"EventType":"Freeze"', b'"More":{"n":1},"EventType":"Hibernate"')
    odd = trial.server.event(kind="Freeze")
    trial.wait_approved(trial.announce(odd))


@_story("advisory", "V-4", "a recommendation, without NotBefore, beside a known event")
def _advisory(trial: ClientTrial) -> None:
    trial.start()
    trial.server.edit = (b'"EventType":"Freeze"', b'"EventType":"SpotRebalanceRecommendation"')
    event = trial.server.event(kind="Freeze")
    advice = replaced(event, status=ADVISORY_STATUS, not_before_ms=None)
    trial.server.show(advice)
    trial.wait_polls(POLLS_QUIET)
    trial.wait_approved(trial.announce(advice))


def _clocks(name: str, title: str, ahead_ms: int) -> None:
    """Add a story in which the service's clock differs from the client's."""

    @_story(name, "C-11", title)
    def play(trial: ClientTrial) -> None:
        trial.server.ahead_ms = ahead_ms
        trial.start()
        event = trial.server.event(kind="Preempt", notice_s=NOTICE_S_MIN)
        trial.server.show(event)
        trial.wait_approved(event)
        trial.begin(event)
        trial.wait_polls(2)
        trial.refuse_recovered(event)
        trial.server.show()
        trial.wait_recovered(event)


_clocks("clock-behind", "the service's clock is ten minutes behind the client's", -CLOCKS_MS)
_clocks("clock-ahead", "the service's clock is ten minutes ahead of the client's", CLOCKS_MS)


# --- the client is not running ------------------------------------------------------------------


@_story("away", "C-2", "an event is announced while the client is down")
def _away(trial: ClientTrial) -> None:
    trial.start()
    trial.kill()
    event = trial.announce()
    trial.start()
    trial.wait_approved(event)


@_story("restart", "C-9", "the client restarts between its approval and the start")
def _restart(trial: ClientTrial) -> None:
    trial.start()
    event = trial.announce()
    trial.wait_approved(event)
    trial.kill()
    trial.begin(event)
    trial.start()
    trial.wait_polls(POLLS_QUIET)
    trial.refuse_recovered(event)
    trial.server.show()
    trial.wait_recovered(event)


@_story("over", "C-9", "the event is over when the VM runs again")
def _over(trial: ClientTrial) -> None:
    trial.start()
    event = trial.announce()
    trial.wait_approved(event)
    trial.begin(event)
    trial.wait_polls(2)
    trial.kill()
    trial.server.show()
    trial.start()
    trial.wait_recovered(event)


@_story("failure-restart", "C-10", "the VM restarts in an event that appeared as Started")
def _failure_restart(trial: ClientTrial) -> None:
    trial.start()
    event = trial.begin(trial.server.event())
    trial.wait_polls(2)
    trial.kill()
    trial.start()
    trial.wait_polls(POLLS_QUIET)
    trial.refuse_recovered(event)
    trial.kill()
    trial.server.show()
    trial.start()
    trial.wait_recovered(event)
    trial.wait_polls(2 + POLLS_QUIET)
    trial.refuse_second_recovery(event)


@_story("cut-off", "C-9", "the client is killed during its approval")
def _killed_while_approving(trial: ClientTrial) -> None:
    trial.start()
    trial.server.set_fault("POST", "hold")
    event = trial.announce()
    trial.wait_posted(event)
    trial.kill()
    trial.server.set_fault("POST", "")
    trial.start()
    trial.wait_approved(event)


# --- faults of the service ----------------------------------------------------------------------


@_story("unanswered", "C-7", "approvals fail with 503, 429 and a reset connection")
def _unanswered(trial: ClientTrial) -> None:
    trial.start()
    trial.server.set_fault("POST", "503")
    event = trial.announce()
    for number, fault in enumerate(("429", "reset", ""), 1):
        trial.wait_posted(event, number)
        trial.server.set_fault("POST", fault)
    trial.wait_approved(event)


@_story("late", "C-1", "the first answer takes long, or never arrives")
def _late(trial: ClientTrial) -> None:
    trial.server.set_fault("GET", "hold")
    trial.start()
    trial.server.set_fault("GET", "")
    trial.server.released.wait(2.0)  # the client is waiting for the answer
    trial.server.released.set()
    event = trial.announce()
    trial.wait_approved(event)


def _troubled(name: str, title: str, *faults: str) -> None:
    """Add a story in which polls fail before an event is announced."""

    @_story(name, "C-7", title)
    def play(trial: ClientTrial) -> None:
        trial.start()
        trial.wait_polls(1)
        for fault in faults:
            trial.trouble(fault)
        trial.wait_approved(trial.announce())


_troubled("throttled", "polls are answered 429 with Retry-After", "429")
_troubled("failing", "polls are answered 500 and 503", "500", "503")
_troubled("gone", "polls are answered 410", "410")
_troubled("reset", "connections are reset", "reset")
_troubled("half", "documents are incomplete, in the body or in the JSON", "half", "not-json")
_troubled("redirect", "the client must not follow a redirect", "redirect")


@_story("empty", "C-7", "empty answers do not end an event")
def _empty(trial: ClientTrial) -> None:
    trial.start()
    event = trial.announce()
    trial.wait_approved(event)
    now = trial.begin(event)
    trial.wait_polls(1)
    trial.trouble("empty")
    trial.server.show(now)
    trial.wait_polls(2)
    trial.refuse_recovered(event)
    trial.server.show()
    trial.wait_recovered(event)


@_story("proxy", "C-7", "the client must ignore a proxy in the environment")
def _proxy(trial: ClientTrial) -> None:
    trial.environment.update(
        {"http_proxy": trial.server.endpoint, "HTTP_PROXY": trial.server.endpoint}
    )
    trial.start()
    trial.wait_approved(trial.announce())


def _older(name: str, title: str, *, by_404: bool) -> None:
    """Add a story in which the service supports only older api-versions."""

    @_story(name, "E-3", title)
    def play(trial: ClientTrial) -> None:
        trial.server.versions = VERSIONS[:-1]
        trial.server.versions_by_404 = by_404
        trial.start()
        seen = trial.server.seen
        trial.wait(lambda: trial.polls() >= POLLS_QUIET, "the client stopped polling")
        versions = set(seen.versions)
        if versions == {VERSIONS[-1]}:
            raise NotApplicable(f"the client uses only api-version {VERSIONS[-1]}")
        trial.wait_approved(trial.announce())


_older("older", "the service supports only older api-versions", by_404=False)
_older("unknown-version", "an unknown api-version is answered 404", by_404=True)
