"""The feed's messages: as JSON and back."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn_base.protocol.identity import CallerIdentity
from forewarn_core.requests import (
    ApprovalRequest,
    EnableRequest,
    OutcomeRequest,
    Request,
    RequestAnswer,
)
from forewarn_metadata.replication import worker_streams
from forewarn_metadata.replication.feed_state import FeedState
from forewarn_metadata.replication.messages import (
    Answered,
    Caller,
    ChangePart,
    DocumentChange,
    FeedUnreadable,
    FromWorker,
    Hello,
    NodePart,
    Ping,
    PollReport,
    Publication,
    Shown,
    ToWorker,
    VmPoll,
    WorkerReport,
    WorkerRequest,
    encoded,
    line_of,
    read_from_worker,
    read_part,
    read_request,
    read_to_worker,
)
from forewarn_metadata.replication.worker_client import joined
from forewarn_metadata.replication.worker_streams import lines_of
from tests.protocol.test_documents import DOCUMENTS

TEXT = st.text(max_size=10)
NUMBERS = st.integers(0, 2**63 - 1)
NAMES = st.lists(TEXT, max_size=3).map(tuple)
FACTS = st.dictionaries(TEXT, st.none() | st.booleans() | NUMBERS | TEXT, max_size=3)
CALLERS = st.builds(
    Caller,
    vm=TEXT,
    group=TEXT,
    view=TEXT,
    addresses=NAMES,
    interface=TEXT,
    instance_id=TEXT,
    instance=FACTS,
    host=TEXT,
    destinations=NAMES,
)
PUBLICATIONS = st.builds(Publication, view=TEXT, enabled=st.booleans(), document=DOCUMENTS)
CHANGES = st.builds(
    DocumentChange,
    sequence=NUMBERS,
    whole=st.booleans(),
    callers=st.lists(CALLERS, max_size=3).map(tuple),
    gone=NAMES,
    publications=st.lists(PUBLICATIONS, max_size=3).map(tuple),
)
PARTS = st.builds(
    NodePart,
    vms=st.lists(CALLERS, max_size=4, unique_by=lambda each: each.vm).map(tuple),
    documents=st.lists(
        PUBLICATIONS.map(lambda each: Publication(each.view, True, each.document)),
        max_size=4,
        unique_by=lambda each: each.view,
    ).map(tuple),
)
ANSWERS = st.builds(RequestAnswer, accepted=st.booleans(), error=TEXT, outcome=TEXT)
IDENTITIES = st.builds(CallerIdentity, address=TEXT, interface=TEXT, instance_id=TEXT)
REQUESTS: st.SearchStrategy[Request] = st.one_of(
    st.builds(
        ApprovalRequest,
        vm=TEXT,
        event_ids=NAMES,
        address=TEXT,
        identity=IDENTITIES,
        node_hosts=NAMES,
    ),
    st.builds(EnableRequest, vm=TEXT),
    st.builds(OutcomeRequest, vm=TEXT, event_id=TEXT),
)
REPORTS = st.builds(
    PollReport,
    groups=st.dictionaries(TEXT, NUMBERS, max_size=3),
    vms=st.lists(st.builds(VmPoll, vm=TEXT, user_agent=TEXT, age_s=NUMBERS), max_size=3).map(tuple),
)
TO_WORKERS: st.SearchStrategy[ToWorker] = st.one_of(
    st.builds(Ping, clock_ms=NUMBERS),
    st.builds(Answered, number=NUMBERS, answer=st.none() | ANSWERS),
    st.builds(ChangePart, callers=st.tuples(CALLERS), gone=NAMES),
    CHANGES,
)
FROM_WORKERS: st.SearchStrategy[FromWorker] = st.one_of(
    st.builds(Hello, name=TEXT),
    st.builds(Shown, sequence=st.none() | NUMBERS),
    st.builds(WorkerRequest, number=NUMBERS, request=REQUESTS),
    st.builds(WorkerReport, clock_ms=NUMBERS, report=REPORTS),
)


@given(REQUESTS | REPORTS)
def test_request_reads_back_as_it_was(message: Request | PollReport) -> None:
    """What a node posts comes out as it went in. Source: A-6, B-1, B-2."""
    assert read_request(encoded(message)) == message


@given(TO_WORKERS, FROM_WORKERS)
def test_lines_of_workers_read_back_as_they_were(said: ToWorker, answered: FromWorker) -> None:
    """A message is one line, and comes out as it went in. Source: L-7, S-1."""
    lines = line_of(said), line_of(answered)
    assert [line.count(b"\n") for line in lines] == [1, 1]
    assert (read_to_worker(lines[0]), read_from_worker(lines[1])) == (said, answered)


@given(PARTS, PARTS)
def test_difference_leads_from_one_part_to_the_next(before: NodePart, after: NodePart) -> None:
    """A node shows exactly the part that it was sent. Source: M-1."""
    state = FeedState()
    state.apply(state.difference(read_part(encoded(before)), 1))
    state.apply(state.difference(read_part(encoded(after)), 2))
    assert state.callers == {each.vm: each for each in after.vms}
    assert state.publications == {each.view: each for each in after.documents}
    assert state.difference(after, 3) == DocumentChange(3)


@given(CHANGES)
def test_change_is_what_its_parts_are_together(change: DocumentChange) -> None:
    """However small its parts are, the change comes out as it went in. Source: M-1."""
    for size in (1, 100, worker_streams.PART_BYTES):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(worker_streams, "PART_BYTES", size)
            *parts, last = map(read_to_worker, lines_of(change))
            assert isinstance(last, DocumentChange)
            told = [each for each in parts if isinstance(each, ChangePart)]
            assert joined(told, last) == change


def test_fields_that_a_later_version_adds_are_ignored() -> None:
    """So nodes and control planes of two versions understand one another. Source: H-8."""
    vm = {"vm": "v", "group": "g", "view": "g", "later": 1}
    later = {"vms": [vm], "documents": [], "more": {}}
    assert read_part(json.dumps(later).encode()).vms == (Caller("v", "g", "g"),)
    assert read_request(b'{"type":"enable","vm":"v","later":[1]}') == EnableRequest("v")


@pytest.mark.parametrize(
    "form",
    [[], {}, 3, {"vms": 3, "documents": []}, {"vms": [{"vm": "v"}], "documents": []},
     {"vms": [], "documents": [{"view": "g", "enabled": True, "document": 5}]},
     {"vms": [], "documents": [{"view": "g", "enabled": True,
                                "document": {"incarnation": 1, "events": [5]}}]}],
    ids=range(7),
)  # fmt: skip
def test_part_of_another_make_is_refused(form: object) -> None:
    """What is not ours is refused, not half understood. Source: L-7."""
    with pytest.raises(FeedUnreadable):
        read_part(json.dumps(form).encode())


@pytest.mark.parametrize(
    "body",
    [b"", b"x", b"[" * 100_000, b"\xff", b'{"type":"fly"}', b'{"type":"enable"}',
     b'{"type":"polled","groups":{"g":-1}}', b'{"type":"approve","vm":"v","event_ids":["E"]}',
     msgspec.json.encode({"type": "polled", "groups": dict.fromkeys(map(str, range(1001)), 0)})],
    ids=range(9),
)  # fmt: skip
def test_body_that_is_no_request_is_refused(body: bytes) -> None:
    """Nothing but our own messages is taken. Source: L-7."""
    for read in (read_request, read_from_worker, read_to_worker):
        with pytest.raises(FeedUnreadable):
            read(body)
