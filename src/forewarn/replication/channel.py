"""An ordered stream of bytes over messages that may be lost, repeated, reordered or delayed.

Theory of operation. Each end cuts its bytes into numbered frames, and stores a frame until the
other end acknowledges it. Every frame contains the next number that its sender expects, so traffic
in one direction acknowledges the other direction. An end that receives a later number than expected
requests the missing
frames. An end without progress for some ticks sends its oldest frame again. An end returns bytes
only in order, so a fault of the network becomes a delay. The module has no I/O and no clock: the
owner sends the result of `take`, and calls `tick` at regular intervals.
"""

from __future__ import annotations

import zlib
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from forewarn.errors import PeerError

SESSION_BYTES = 16
FRAME_BYTES = 32 * 1024
"""Maximum content of a frame, unless the network allows less."""

WINDOW_FRAMES, WINDOW_BYTES = 64, 256 * 1024
"""Maximum number of unacknowledged bytes, and maximum distance of stored frames from a gap."""

ACK_TICKS, RESEND_TICKS = 2, 3
"""Ticks after which received frames are acknowledged without other traffic, and after which an
unacknowledged frame is sent again."""

_NOBODY = bytes(SESSION_BYTES)
_CHECKSUM = Struct(">I")
_HEADER = Struct(f">B{SESSION_BYTES}sQQ")


class FrameRefused(PeerError):
    """A message is not a frame, or was altered in transit."""

    code = "feed-frame-refused"
    message = "A message of the feed is refused: {reason}."
    advice = (
        "No action is needed, because the message is sent again. If refusals continue, look for "
        "other publishers."
    )


class Kind(IntEnum):
    """The purpose of a frame."""

    HELLO = 1
    """A node requests a session; the session field has the node's number of the request."""
    WELCOME = 2
    """Answers HELLO with the session's name as content."""
    DATA = 3
    ACK = 4
    """Acknowledges frames: contains the next number that the sender expects."""
    RESEND = 5
    """Requests the frames from the expected number up to, but excluding, the frame's own number."""
    CLOSE = 6
    """Last frame of the sender."""
    ANNOUNCE = 7
    """Reports that a control plane starts to serve, which ends the sessions of another control
    plane."""


class Frame(NamedTuple):
    """A message of the carrier."""

    kind: Kind
    session: bytes = _NOBODY
    number: int = 0
    expected: int = 0
    """Next number that the sender expects, after all received numbers."""
    content: bytes = b""

    def encoded(self) -> bytes:
        """Return the frame's bytes, starting with its checksum."""
        head = _HEADER.pack(self.kind, self.session, self.number, self.expected)
        return _CHECKSUM.pack(zlib.crc32(self.content, zlib.crc32(head))) + head + self.content


FRAME_OVERHEAD = _CHECKSUM.size + _HEADER.size


def read_frame(body: bytes) -> Frame:
    """Parse a frame.

    Raises:
        FrameRefused: the frame is too short, its checksum differs, or its kind is unknown.
    """
    if len(body) < FRAME_OVERHEAD:
        raise FrameRefused(reason="the frame is too short")
    [checksum] = _CHECKSUM.unpack_from(body)
    if zlib.crc32(memoryview(body)[_CHECKSUM.size :]) != checksum:
        raise FrameRefused(reason="the checksum differs")
    kind, session, number, expected = _HEADER.unpack_from(body, _CHECKSUM.size)
    try:
        return Frame(Kind(kind), session, number, expected, body[FRAME_OVERHEAD:])
    except ValueError as error:
        raise FrameRefused(reason=f"kind {kind} is unknown") from error


class Channel:
    """One end of a session."""

    def __init__(self, session: bytes, *, frame_bytes: int = FRAME_BYTES) -> None:
        """Begin a session; `frame_bytes` is the largest content of a frame."""
        self.session = session
        self._frame_bytes = min(frame_bytes, FRAME_BYTES)
        self._unsent = bytearray()
        self._next = 0
        self._window: dict[int, bytes] = {}
        """Frames that the other end has not acknowledged, in order."""
        self._window_bytes = 0
        self._stalled_ticks = 0
        self._expected = 0
        self._early: dict[int, Frame] = {}
        """Received frames that `read` has not returned."""
        self._acknowledged = 0
        """The expected number in the last sent frame."""
        self._unacknowledged_bytes = 0
        self._owing_ticks = 0
        self._requested = -1
        """The first frame of the requested gap."""
        self._out: list[bytes] = []
        self.ended = False
        """Whether the other end has closed, and all its bytes were read."""
        self.gaps = 0
        """Number of gaps that were filled on request."""

    @property
    def unsent(self) -> int:
        """Return the number of bytes that wait for the window."""
        return len(self._unsent)

    @property
    def has_output(self) -> bool:
        """Whether `take` may return something."""
        return bool(self._out or self._unsent)

    @property
    def waits(self) -> bool:
        """Whether `tick` may have work; an idle end has none."""
        return bool(self._window or self._early or self._expected > self._acknowledged)

    def write(self, content: bytes) -> None:
        """Send bytes once the window permits."""
        self._unsent += content

    def close(self) -> None:
        """Send the bytes that the window permits, drop the rest, and send the last frame."""
        self._cut()
        self._unsent.clear()
        self._put(Kind.CLOSE, self._next)

    def receive(self, frame: Frame) -> None:
        """Process a frame of this session."""
        self._progress(frame.expected)
        number = frame.number
        if frame.kind is Kind.RESEND:
            for each in tuple(self._window):
                if each < number:
                    self._put(Kind.DATA, each, self._window[each])
        elif frame.kind in {Kind.DATA, Kind.CLOSE}:
            if number < self._expected:
                self._put(Kind.ACK)  # the frame's acknowledgement was lost
            elif number < self._expected + WINDOW_FRAMES:
                self._early[number] = frame
                if self._lacks and self._requested != self._expected:
                    self._request()

    def read(self) -> bytes:
        """Return the bytes that have arrived in order since the last call."""
        parts = []
        while frame := self._early.pop(self._expected, None):
            self.gaps += self._requested == self._expected
            self._expected += 1
            self.ended = frame.kind is Kind.CLOSE
            parts.append(frame.content)
        content = b"".join(parts)
        self._unacknowledged_bytes += len(content)
        frames = self._expected - self._acknowledged
        if frames > WINDOW_FRAMES // 4 or self._unacknowledged_bytes > WINDOW_BYTES // 4:
            self._put(Kind.ACK)
        return content

    def take(self) -> list[bytes]:
        """Return the frames to send now."""
        self._cut()
        out, self._out = self._out, []
        return out

    def tick(self) -> None:
        """Send overdue acknowledgements, requests and repetitions."""
        if self._lacks:
            self._request()
        self._owing_ticks = self._owing_ticks + 1 if self._expected > self._acknowledged else 0
        if self._owing_ticks >= ACK_TICKS:
            self._put(Kind.ACK)
        self._stalled_ticks = self._stalled_ticks + 1 if self._window else 0
        if self._stalled_ticks >= RESEND_TICKS:
            oldest = next(iter(self._window))
            self._put(Kind.DATA, oldest, self._window[oldest])

    @property
    def _lacks(self) -> bool:
        return bool(self._early) and self._expected not in self._early

    def _request(self) -> None:
        self._requested = self._expected
        self._put(Kind.RESEND, min(self._early))

    def _progress(self, expected: int) -> None:
        """Drop the acknowledged frames."""
        if expected > self._next:
            return  # the other end never received these frames
        for number in tuple(self._window):
            if number >= expected:
                break
            self._window_bytes -= len(self._window.pop(number))
            self._stalled_ticks = 0

    def _cut(self) -> None:
        while self._unsent and len(self._window) < WINDOW_FRAMES:
            if self._window_bytes >= WINDOW_BYTES:
                break
            content = bytes(self._unsent[: self._frame_bytes])
            del self._unsent[: self._frame_bytes]
            self._window[self._next] = content
            self._window_bytes += len(content)
            self._put(Kind.DATA, self._next, content)
            self._next += 1

    def _put(self, kind: Kind, number: int = 0, content: bytes = b"") -> None:
        self._acknowledged = self._expected
        self._unacknowledged_bytes = 0
        self._out.append(Frame(kind, self.session, number, self._expected, content).encoded())
