"""The rules that keep work on hosts waiting, one module for each.

Source: F-3, F-7, F-8, G-1. A rule has the codes of its blockers with their sentences, its members
of the policy, and the functions that judge it. The planner, admission, the start of work and `why`
call these functions; `planning/checker.py` and the simulator's checkers judge every rule a second
time, on their own.

`RULES` is in the order in which the rules are judged: the first blocker is the one that people see.
"""

from forewarn.rules import (
    budget,
    capacity,
    fault_domain,
    host_busy,
    notice,
    other_waits,
    owner_rest,
    pause,
    postponement,
    previous_wave,
    window,
)

#: Importing a rule describes its codes.
RULES = (
    notice,
    previous_wave,
    window,
    other_waits,
    postponement,
    pause,
    owner_rest,
    host_busy,
    fault_domain,
    capacity,
    budget,
)
