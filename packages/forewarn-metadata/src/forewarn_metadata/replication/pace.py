"""How often nodes ask: the control plane states it in each answer, by its number of nodes."""

from __future__ import annotations

from forewarn_base.values import value

#: Headers with the id of a node's process, and with a control plane's `FeedPace`.
INSTANCE, PACE = "forewarn-instance", "forewarn-pace"

#: Headers with the last change before an answer, and with a control plane's monotonic clock.
SEQUENCE, CLOCK = "forewarn-sequence", "forewarn-clock"

#: Long polls, and reports of polls, that one control plane invites per second.
ASKS_PER_S_MAX = 400

#: Nodes per second that one control plane invites to another one if it fails, without and with TLS,
#: whose handshake takes more than a millisecond of the processor.
RETURNS_PER_S_MAX, TLS_RETURNS_PER_S_MAX = 1000, 400

#: Limits of a long poll's wait: a hanging control plane is noticed after the wait.
WAIT_S_MIN, WAIT_S_MAX = 5.0, 25.0

#: Minimum interval between a node's reports of polls, in seconds.
REPORT_S_MIN = 1.0


@value
class FeedPace:
    """Times of a node, in seconds."""

    #: Wait of a long poll.
    wait_s: float = WAIT_S_MIN
    #: Interval between reports of polls.
    report_s: float = REPORT_S_MIN
    #: Time over which nodes spread their return after the loss of a control plane, and after each
    #: attempt that fails.
    return_s: float = 0.0

    def text(self) -> str:
        """Return the value of the header."""
        return f"wait={self.wait_s:.0f}, report={self.report_s:.0f}, return={self.return_s:.1f}"


def pace_for(nodes: int, *, is_tls: bool = False) -> FeedPace:
    """Return the pace of a control plane with this number of nodes."""
    returns_per_s = TLS_RETURNS_PER_S_MAX if is_tls else RETURNS_PER_S_MAX
    interval_s = nodes / ASKS_PER_S_MAX
    return FeedPace(
        min(max(interval_s, WAIT_S_MIN), WAIT_S_MAX),
        min(max(interval_s, REPORT_S_MIN), WAIT_S_MAX),
        min(nodes / returns_per_s, WAIT_S_MAX),
    )


def read_pace(text: str) -> FeedPace:
    """Return a stated pace within the limits, with defaults for missing or malformed times."""
    times = {}
    for part in text[:200].split(","):
        name, _, number = part.strip().partition("=")
        if number.replace(".", "", 1).isdecimal():
            times[name] = min(float(number), WAIT_S_MAX)
    default = FeedPace()
    return FeedPace(
        times.get("wait", default.wait_s),
        times.get("report", default.report_s),
        times.get("return", default.return_s),
    )
