"""`forewarn` on a machine whose clock is wrong: `python -m tests.chaos.skewed SKEW WORDS`.

The file SKEW has the seconds by which the time of day is ahead; it may change at any time, as a
stepped clock does. The monotonic clock and the time since boot stay right, as on a real machine.
(libfaketime 0.9.10 has `time.sleep` of Python 3.11 fail once its file changes.)
"""

import sys
import time
from pathlib import Path

_real_ns = time.time_ns
_file = Path(sys.argv[1])
#: How long a value of the file is used, in nanoseconds.
_KEPT_NS = 200_000_000
_kept = [0, 0]


def _skewed_ns() -> int:
    now_ns = time.monotonic_ns()
    if now_ns >= _kept[0]:
        _kept[:] = [now_ns + _KEPT_NS, int(_file.read_text() or _kept[1] // 10**9) * 10**9]
    return _real_ns() + _kept[1]


time.time_ns = _skewed_ns
time.time = lambda: _skewed_ns() / 1e9

from forewarn_server.cli.main import main  # noqa: E402 - after the clock is wrong

if __name__ == "__main__":
    sys.exit(main(sys.argv[2:]))
