"""Host busy: one piece of work at a time on a host and on a VM. Source: G-1, L-10.

VMs on their way to a host keep it busy too.
"""

from __future__ import annotations

from forewarn.rules.blockers import EVERYWHERE, Code, Judge, Meaning, describe

describe(
    Code.HOST_BUSY,
    Meaning(
        "{who} waits for {subject} to end",
        "Other work is announced or runs on the host.",
        "That work ends.",
        EVERYWHERE,
        clears_early=True,
        ends_with_wave=True,
    ),
)
describe(
    Code.VM_BUSY,
    Meaning(
        "{name} waits for {subject} to end",
        "Other work runs on the VM.",
        "That work ends.",
        frozenset({Judge.START}),
    ),
)
describe(
    Code.ARRIVALS,
    Meaning(
        "VMs are about to arrive on {who} with {subject}",
        "Work moves VMs to the host.",
        "That work ends.",
        EVERYWHERE,
        clears_early=True,
        ends_with_wave=True,
    ),
)
