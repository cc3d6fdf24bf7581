"""Breakages of what clients notice by the time it happens, and who is expected to notice each.

Nothing is run in here: `mutate.py` runs one in a process of its own, never in the checkout.
"""

from __future__ import annotations

from tests.simulator.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "approvals-never-start",
        "approvals never start work early",
        (
            (
                "forewarn.core.step",
                "any(event.state is EventState.SCHEDULED for event in asked)",
                "asked",
            ),
        ),
        caught_by="world 1: L-1",
    ),
    Mutant(
        "leader-never-approves",
        "the first VM in Resources never approves",
        (
            (
                "forewarn.agent.core.coordination",
                'return Turn("this VM is the first in Resources", go=True)',
                'return Turn("this VM is the first in Resources")',
            ),
        ),
        caught_by="world 1: C-5",
    ),
    Mutant(
        "disabled-after-half-a-day",
        "groups are disabled after twelve hours",
        (
            (
                "forewarn.core.policy",
                "disable_after_s: int = DAY_S",
                "disable_after_s: int = DAY_S // 2",
            ),
        ),
        caught_by="world 1: B-2",
    ),
    Mutant(
        "no-own-documents",
        "GPU VMs have no documents of their own",
        (
            (
                "forewarn.core.topology",
                "return self.fault_domain_count == 1 and self.kind is GroupKind.SCALE_SET",
                "return False",
            ),
        ),
        caught_by="world 1: S-3",
    ),
    Mutant(
        "preempt-notice-halved",
        "Preempt gets fifteen seconds of notice",
        (("forewarn.core.impact", "Impact.PREEMPT: 30,", "Impact.PREEMPT: 15,"),),
        caught_by="world 1: 6",
    ),
    Mutant(
        "end-not-shown",
        "a document that becomes empty is not shown",
        (
            (
                "forewarn.metadata.snapshot",
                "            self.view(publication.view).publish(publication)\n",
                (
                    "            if publication.document.events or whole:\n"
                    "                self.view(publication.view).publish(publication)\n"
                ),
            ),
        ),
        caught_by="world 1: S-1",
    ),
)
