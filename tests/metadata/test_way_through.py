"""How many files of the metadata service a request passes through, on the event loop's thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.metadata.live import EVENTS, FREEZE, approval, request, serving
from tests.tracing import Trace, profile_this_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.metadata.live import Live


def passed(live: Live, act: Callable[[], None]) -> set[str]:
    """Return the files the server's thread ran code of while something was done."""
    trace = Trace()
    live.call(lambda: profile_this_thread(trace))
    with trace.files() as files:
        act()
    live.call(lambda: profile_this_thread(None))
    return files


def test_warm_poll_passes_three_files(portable: bool) -> None:
    """A poll that is answered from memory needs next to nothing of the house. Source: E-1."""
    with serving(portable=portable) as live, live.connect() as raw:

        def poll() -> None:
            raw.send(request(EVENTS))
            assert raw.reply().status == 200

        poll()
        files = passed(live, poll)
        assert len(files) <= 3, files


def test_approval_passes_nine_files_of_the_metadata_service(portable: bool) -> None:
    """So that twenty suffice to its 200, the control plane's included. Source: A-6."""
    with serving(portable=portable) as live, live.connect() as raw:
        octets = request(EVENTS, method="POST", body=approval(FREEZE.event_id))

        def approve() -> None:
            raw.send(octets)
            assert raw.reply().status == 200

        approve()
        files = passed(live, approve)
        assert len(files) <= 9, files
