"""A service as a process ends, whatever hangs."""

import signal
import subprocess
import sys

import pytest

from tests.waiting import LIMIT_S

HANGING = """
import asyncio, sys, threading
from forewarn_server.service import process
from forewarn_server.service.parts import BoundAddresses

class Hanging:
    failure, bound = None, BoundAddresses(("nowhere",), "")
    def reload_soon(self):
        pass
    def __init__(self):
        self.ended = asyncio.Event()
    async def stop(self):
        {hang}

async def main():
    return await process.run_until_stopped(Hanging(), lambda _: print("up", flush=True))

process.STOP_S_MAX = 0.1
sys.exit(process.run(main))
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="signals are POSIX's")
@pytest.mark.parametrize(
    "hang",
    ["await asyncio.to_thread(threading.Event().wait)", "threading.Event().wait()"],
    ids=["a-thread", "the-event-loop"],
)
def test_service_that_cannot_stop_is_ended(hang: str) -> None:
    """A database that hangs keeps neither a thread nor the process alive. Source: L-7."""
    command = [sys.executable, "-c", HANGING.format(hang=hang)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 1
    assert b"the process is killed" in said
