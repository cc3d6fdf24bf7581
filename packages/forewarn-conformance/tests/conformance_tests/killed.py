"""Run a client that is killed again and again: `python killed.py CLIENT`, with SIGKILL.

It is never killed in the middle of a call of its functions, since it repeats an interrupted call,
which the suite would count.
"""

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

KILLS = 4
ALIVE_S = (0.3, 1.5)
CALLS = Path(os.environ["CONFORMANCE_STATE"], "hooks")
SEED = os.environ["FOREWARN_ENDPOINT"]


def is_calling() -> bool:
    """Return whether a call has begun and not ended; a stopped client begins and ends none."""
    begun = {path.stem for path in CALLS.glob("*.begun")}
    return bool(begun - {path.stem for path in CALLS.glob("*.ended")})


def main() -> int:
    """Start, kill and start the client, then leave it alone."""
    dice, idle = random.Random(SEED), threading.Event()
    for _ in range(KILLS):
        client = subprocess.Popen([sys.executable, *sys.argv[1:]])
        idle.wait(dice.uniform(*ALIVE_S))
        client.send_signal(signal.SIGSTOP)
        while is_calling():
            client.send_signal(signal.SIGCONT)
            idle.wait(0.01)
            client.send_signal(signal.SIGSTOP)
        client.kill()
        if client.wait() != -signal.SIGKILL:
            return client.returncode
    return subprocess.run([sys.executable, *sys.argv[1:]], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
