"""Breakages of the feed between the service and its nodes, and who is expected to notice each.

Nothing is run in here: `mutate.py` runs one in a process of its own, never in the checkout.
"""

from __future__ import annotations

from tests.simulator.mutant import Mutant

BRIDGE, SERVER = "forewarn.service.bridge", "forewarn.replication.server"
FOLLOWER, SESSION = "forewarn.replication.follower", "forewarn.replication.node_session"
SCOPES, STORE = "forewarn.replication.scopes", "forewarn.replication.node_store"
SPOOL, MOVES = "forewarn.replication.spool", "forewarn.replication.moves"
DEPARTURES = "forewarn.core.departures"

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
        caught_by="shells 1: M-4",
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
        caught_by="shells 1: M-4",
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
        caught_by="shells 1: M-1",
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
        caught_by="shells 5: 8",
    ),
    Mutant(
        "missed-changes-skipped",
        "a node that comes back is sent only what changes from then on",
        (
            (
                SERVER,
                "        position = log.position_of(said.sequence, said.checksum)\n",
                "        position = log.next\n",
            ),
        ),
        caught_by="shells 1: M-1",
    ),
    Mutant(
        "torn-change-shown",
        "each portion of a change is shown by itself",
        (
            (
                "forewarn.replication.portions",
                ("        if not portion.last:\n            return None\n"),
                "",
            ),
        ),
        caught_by="shells 1: M-1",
    ),
    Mutant(
        "answer-overtakes-changes",
        "a node is answered before it is sent what the answer is about",
        (
            (
                SESSION,
                "        self._answers.append((self.feed.log.next, feed.line_of(message)))\n",
                "        self.writer.write(feed.line_of(message))\n",
            ),
        ),
        caught_by="shells 1: A-6",
    ),
    Mutant(
        "marks-lost-away",
        "poll marks are lost while the service is away from a node",
        (
            (
                FOLLOWER,
                "        writer = self._writer\n        if writer is None or",
                (
                    "        writer = self._writer\n        if writer is None:\n"
                    "            self._polled.clear()\n        if writer is None or"
                ),
            ),
        ),
        caught_by="shells 1: B-2",
    ),
    Mutant(
        "nodes-sent-all-vms",
        "a node is sent VMs that are not on its hosts",
        (
            (
                SCOPES,
                "{feed: None for host in caller.hosts for feed in self._by_host.get(host, ())}",
                "dict.fromkeys(self._feeds.values())",
            ),
        ),
        caught_by="shells 1: M-5",
    ),
    Mutant(
        "whole-of-all-vms",
        "the whole that a node is sent has everybody's documents",
        (
            (
                SCOPES,
                "        views = dict.fromkeys(caller.view for caller in callers)\n",
                "        views = dict.fromkeys(self.state.publications)\n",
            ),
        ),
        caught_by="shells 1: M-5",
    ),
    Mutant(
        "documents-of-unread-views-stay",
        "a node goes on showing what none of its VMs reads",
        (
            (
                SCOPES,
                ("        if not self._uses(feed, view):\n            draft"),
                ("        if False:\n            draft"),
            ),
        ),
        caught_by="shells 1: M-5",
    ),
    Mutant(
        "moved-vm-leaves-at-once",
        "a VM leaves its old node before the new one has it",
        (
            (
                SCOPES,
                "            feed.leaving[caller.vm] = before.view\n",
                (
                    "            self._drop(feed, before, drafts)\n"
                    "            self._withdraw(feed, before.view, drafts)\n"
                ),
            ),
        ),
        caught_by="shells 5: M-1",
    ),
    Mutant(
        "moved-vm-brings-no-document",
        "a node is sent a VM that moves there, and not its document",
        (
            (
                SCOPES,
                ("                if shown is not None:\n                    draft"),
                ("                if False:\n                    draft"),
            ),
        ),
        caught_by="shells 1: 8",
    ),
    Mutant(
        "moves-unannounced",
        "the node of the host that a VM is being moved to is not sent it",
        (
            (
                "forewarn.control.publication",
                '    return tuple(sorted(hosts - {vm.host, ""}))\n',
                "    return tuple(sorted(hosts - hosts))\n",
            ),
        ),
        caught_by="shells 1: M-1",
    ),
    Mutant(
        "moved-vm-stays",
        "a VM that has moved stays with its old node for ever",
        (
            (
                MOVES,
                "        left = ((move.to, vm) for move in self._under_way for vm in move.vms)\n",
                "        return\n",
            ),
        ),
        caught_by="shells 1: M-5",
    ),
    Mutant(
        "foreign-approval-taken",
        "a node approves for VMs that are not on its hosts",
        (
            (
                DEPARTURES,
                "    if vm.host in hosts:\n",
                "    if hosts:\n",
            ),
        ),
        caught_by="shells 1: M-5",
    ),
    Mutant(
        "shown-before-kept",
        "a node shows a change before it is on its disk",
        (
            (
                FOLLOWER,
                (
                    "            if self._store is not None:\n"
                    "                self._store.keep(change, position)\n"
                    "            self._apply(change)\n"
                ),
                (
                    "            self._apply(change)\n"
                    "            if self._store is not None:\n"
                    "                self._store.keep(change, position)\n"
                ),
            ),
        ),
        caught_by="shells 1: M-2",
    ),
    Mutant(
        "changes-not-kept",
        "a node keeps the whole, and none of the changes since",
        (
            (
                STORE,
                "self.files.append(FILE, (each.line for each in portions))",
                "1",
            ),
        ),
        caught_by="shells 1: D-1",
    ),
    Mutant(
        "node-comes-back-empty",
        "a node shows nothing after a restart until it is sent something",
        (
            (
                STORE,
                ("        if not self.position.epoch:\n            return None\n"),
                ("        if self.position.epoch:\n            return None\n"),
            ),
        ),
        caught_by="shells 1: M-2",
    ),
    Mutant(
        "cut-off-line-is-damage",
        "a line that was cut off by a loss of power spoils all that was kept",
        ((STORE, ('            if not line.endswith(b"\\n"):\n                break\n'), ""),),
        caught_by="shells 1: M-2",
    ),
    Mutant(
        "spooled-unwritten",
        "a node accepts an approval that is not on its disk",
        (
            (
                SPOOL,
                "                reason = self._append(line)\n",
                '                reason = ""\n',
            ),
        ),
        caught_by="shells 5: 11",
    ),
    Mutant(
        "spool-thrown-away",
        "what a node has accepted is let go, and not handed on",
        (
            (
                SPOOL,
                "                answer = await self._follower.approve(request)\n",
                "                answer = ApprovalAnswer(accepted=True)\n",
            ),
        ),
        caught_by="shells 5: 11",
    ),
    Mutant(
        "spool-accepts-anything",
        "a node accepts approvals of what its VMs are not shown",
        (
            (
                SPOOL,
                "[event_id for event_id in request.event_ids if event_id not in ids]",
                "[event_id for event_id in ids if False]",
            ),
        ),
        caught_by="shells 1: 7",
    ),
    Mutant(
        "absent-nodes-not-awaited",
        "notice counts although the node of the VMs never came",
        (
            (
                SERVER,
                "        concerned.update(self._access.expected(",
                "        frozenset(self._access.expected(",
            ),
        ),
        caught_by="shells 1: M-4",
    ),
    Mutant(
        "whole-not-awaited",
        "after a restart nobody waits for the nodes that are named",
        (
            (
                SERVER,
                ("        if self._access is None:\n            return None\n        concerned"),
                (
                    "        if self._access is None or change.whole:\n"
                    "            return None\n"
                    "        concerned"
                ),
            ),
        ),
        caught_by="shells 1: M-4",
    ),
    Mutant(
        "absent-nodes-unreported",
        "nothing reports which nodes do not show what begins",
        (
            (
                "forewarn.control.engine",
                "        if result.unconfirmed and follow_up:\n",
                "        if False:\n",
            ),
        ),
        caught_by="shells 1: M-4",
    ),
    Mutant(
        "refused-write-leaves-old-file",
        "a node whose disk is full comes back with what it showed before",
        (
            (
                STORE,
                ("        self._on_disk = False\n        self._forget()\n"),
                "        self._on_disk = False\n",
            ),
        ),
        caught_by="shells 5: M-2",
    ),
    Mutant(
        "spool-not-read",
        "what a node had accepted is forgotten with its process",
        ((SPOOL, ("        self._load()\n        follower"), "        follower"),),
        caught_by="shells 13: 11",
    ),
)
