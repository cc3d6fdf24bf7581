"""Breakages of the feed between the service and its nodes, and who is expected to notice each.

Nothing is run in here: `mutate.py` runs one in a process of its own, never in the checkout.
"""

from __future__ import annotations

from tests.simulator.mutant import Mutant

BRIDGE, SERVER = "forewarn.service.bridge", "forewarn.replication.server"
FOLLOWER, SESSION = "forewarn.replication.follower", "forewarn.replication.node_session"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "far-nodes-not-awaited",
        "work begins before the nodes away from the service show it",
        (
            (
                BRIDGE,
                "        if self._far is None:\n            shown",
                "        if True:\n            shown",
            ),
        ),
        caught_by="shells 1: 8",
    ),
    Mutant(
        "sent-is-shown",
        "a node counts as showing what it was only sent",
        (
            (
                SERVER,
                "                session.position += 1\n",
                (
                    "                session.position += 1\n"
                    "                self.nodes.shows(session.name, change.sequence)\n"
                ),
            ),
        ),
        caught_by="shells 1: 8",
    ),
    Mutant(
        "change-acknowledged-unshown",
        "a node acknowledges changes, and shows only wholes",
        (
            (
                FOLLOWER,
                "            self._apply(change)\n",
                "            if change.whole:\n                self._apply(change)\n",
            ),
        ),
        caught_by="shells 1: 8",
    ),
    Mutant(
        "far-approvals-lost",
        "approvals at a node away from the service are answered, and go nowhere",
        (
            (
                SESSION,
                "                approved = self._upstream.approve(request)\n",
                (
                    "                approved = asyncio.get_running_loop().create_future()\n"
                    "                approved.set_result(ApprovalAnswer(accepted=True))\n"
                ),
            ),
        ),
        caught_by="shells 1: 11",
    ),
    Mutant(
        "hung-service-followed",
        "a node waits for ever for a service that says nothing",
        (
            (
                "forewarn.replication.route",
                (
                    "    async with asyncio.timeout(silent_s_max):\n"
                    "        return await reader.readline()\n"
                ),
                "    return await reader.readline()\n",
            ),
        ),
        caught_by="shells 1: 8",
    ),
)
