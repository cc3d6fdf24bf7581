"""Until when the workers of a service may answer VMs, in memory that they share with the service.

The service extends the time while it holds its lease. The workers read the time themselves, so that
they notice a service that hangs or is stopped. Source: H-3.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile

#: Milliseconds of the machine's monotonic clock, which all its processes share.
_TIME = struct.Struct("<q")


class SharedProof:
    """A time until which a service has proved that nobody else decides."""

    def __init__(self, descriptor: int | None = None) -> None:
        """Open the memory of an inherited file descriptor; None: create it."""
        if descriptor is None:
            with tempfile.TemporaryFile() as file:
                file.truncate(_TIME.size)
                descriptor = os.dup(file.fileno())
        #: Descriptor for the workers to inherit.
        self.descriptor = descriptor
        self._memory = mmap.mmap(descriptor, _TIME.size)

    def extend(self, until_ms: int) -> None:
        """Set the time, in ms of `Clock.elapsed_ms`; on any thread."""
        _TIME.pack_into(self._memory, 0, until_ms)

    def holds(self, elapsed_ms: int) -> bool:
        """Return whether the time has not passed yet."""
        until_ms: int = _TIME.unpack_from(self._memory)[0]
        return elapsed_ms < until_ms

    def close(self) -> None:
        """Release the memory."""
        self._memory.close()
        os.close(self.descriptor)
