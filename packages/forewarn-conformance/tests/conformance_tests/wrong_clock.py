"""Run a client on a VM whose clock is wrong: `python wrong_clock.py SECONDS CLIENT`."""

import runpy
import sys
import time

AHEAD_S = int(sys.argv[1])
right_s, right_ns = time.time, time.time_ns
time.time = lambda: right_s() + AHEAD_S
time.time_ns = lambda: right_ns() + AHEAD_S * 1_000_000_000
sys.argv[:] = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
