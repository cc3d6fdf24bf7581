"""The only module with randomness: identifiers, tokens and jitter, each with its own stream.

The agent imports this module, so it imports nothing heavy.
"""

from __future__ import annotations

import random


class Ids:
    """Makes identifiers; each kind has its own stream, so that kinds do not affect each other.

    With a seed every stream repeats from run to run, for the emulator and the simulator. Such a run
    must not share a store with an earlier one, because ids are never reused (D-3). Without a seed
    the system's randomness makes ids unguessable.
    """

    def __init__(self, seed: int | None = None) -> None:
        """Start without streams; each is opened at first use."""
        self._seed = seed
        self._streams: dict[str, random.Random] = {}

    def stream(self, kind: str) -> random.Random:
        """Return the stream of one kind."""
        stream = self._streams.get(kind)
        if stream is None:
            if self._seed is None:
                stream = random.SystemRandom()
            else:
                stream = random.Random(f"{self._seed}/{kind}")
            self._streams[kind] = stream
        return stream

    def guid(self, kind: str) -> str:
        """Return a version 4 GUID, upper case. Source: D-3."""
        bits = self.stream(kind).getrandbits(128)
        bits = bits & ~(0xF << 76) | 0x4 << 76  # the version
        bits = bits & ~(0x3 << 62) | 0x2 << 62  # the variant
        text = f"{bits:032X}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def token(self, kind: str) -> str:
        """Return 128 random bits as 32 lower-case hexadecimal digits."""
        return f"{self.stream(kind).getrandbits(128):032x}"

    def fraction(self, kind: str) -> float:
        """Return a number from 0 (included) to 1 (excluded), for jitter."""
        return self.stream(kind).random()


def guid_of(text: str) -> str:
    """Return the same GUID for the same text, upper case; it is a digest and not random."""
    import hashlib  # noqa: PLC0415  it loads OpenSSL, which the agent can do without

    digits = hashlib.sha256(text.encode()).hexdigest()[:32].upper()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
