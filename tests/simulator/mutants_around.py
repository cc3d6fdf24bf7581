"""Breakages of what stands around the core, and who is expected to notice each.

Nothing is run in here: `mutate.py` runs one in a process of its own, never in the checkout.
"""

from __future__ import annotations

from tests.simulator.mutant import Mutant

LOOP, PLANE = "forewarn.control.engine", "forewarn.control.plane"
DRIVERS, PUBLISHING = "forewarn.control.driver_host", "forewarn.control.publishing"
CALLS = "forewarn.control.driver_calls"
CHANGES, STORE = "forewarn.control.publication", "forewarn.store"
AGENT, TURNS = "forewarn.agent.core.engine", "forewarn.agent.core.coordination"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "publish-before-commit",
        "documents are shown before they are durable",
        (
            (
                PLANE,
                "            self.store.commit(written)\n            self._adopt(written)\n",
                (
                    "            before = self.state\n"
                    "            self.state = copy.deepcopy(before)\n"
                    "            self.state.adopt(written)\n"
                    "            early = layout and publication.difference(self.state, written, "
                    "self.store.generation, before=layout)\n"
                    "            if early:\n"
                    "                self.early(early)\n"
                    "            self.state = before\n"
                    "            self.store.commit(written)\n"
                    "            self._adopt(written)\n"
                ),
            ),
            (
                PLANE,
                "from typing import TYPE_CHECKING\n",
                "import copy\nfrom typing import TYPE_CHECKING\n",
            ),
            (
                LOOP,
                "        self._publishing = Publishing(publisher, self._inbox.put)\n",
                (
                    "        self._publishing = Publishing(publisher, self._inbox.put)\n"
                    "        plane.early = publisher.publish\n"
                ),
            ),
        ),
        caught_by="world 1: 8",
    ),
    Mutant(
        "shown-although-refused",
        "a document is shown although the store refused to write it",
        (
            (
                PLANE,
                "            self.store.commit(written)\n",
                (
                    "            try:\n"
                    "                self.store.commit(written)\n"
                    "            except PeerError:\n"
                    "                pass\n"
                ),
            ),
            (
                PLANE,
                "from typing import TYPE_CHECKING\n",
                "from typing import TYPE_CHECKING\nfrom forewarn.errors import PeerError\n",
            ),
        ),
        caught_by="transcript A-6-lost-before-commit",
    ),
    Mutant(
        "lost-commit-forgotten",
        "a lost commit that did happen is not adopted",
        ((PLANE, "            self._adopt(happened)\n", "            pass\n"),),
        caught_by="transcript A-6-lost-after-commit",
    ),
    Mutant(
        "lost-commit-believed",
        "a lost commit is adopted though it did not happen",
        (
            (
                STORE,
                "        if generation == self.generation:\n            return None\n",
                "        if changes is None:\n            return None\n",
            ),
            (STORE, "        assert generation == self.generation + 1, generation\n", ""),
        ),
        caught_by="transcript A-6-lost-before-commit",
    ),
    Mutant(
        "id-reused",
        "event ids are drawn from sixteen",
        (
            (
                "forewarn.ids",
                ("bits = self.stream(kind).getrandbits(128)\n        bits = bits &"),
                ("bits = self.stream(kind).getrandbits(4)\n        bits = bits &"),
            ),
        ),
        caught_by="world 1: 3",
    ),
    Mutant(
        "approval-not-written",
        "an approval is kept in memory only, and lost on a crash",
        (
            (
                STORE,
                ("        if record is None:\n            gone"),
                (
                    '        if kind == "event" and record and record.state.value == '
                    '"approved":\n'
                    "            continue\n"
                    "        if record is None:\n"
                    "            gone"
                ),
            ),
        ),
        caught_by="world 1: 10",
    ),
    Mutant(
        "begun-before-shown",
        "a driver is called to begin before nodes show the start",
        (
            (
                PUBLISHING,
                "        publication = _Publication(operations, [follow_up])\n",
                (
                    "        publication = _Publication(operations, [])\n"
                    "        self._deliver(follow_up)\n"
                ),
            ),
        ),
        caught_by="world 3: 8",
    ),
    Mutant(
        "asked-before-begun-again",
        "a driver is asked after a retry that it was not yet called to begin",
        (
            (
                DRIVERS,
                "        if operation.attempt != planned.attempt:\n            return None\n",
                "",
            ),
        ),
        caught_by="transcript L-8-retry-not-asked-after-early",
    ),
    Mutant(
        "abort-forgotten",
        "a driver that a crash kept from being called to abort is not called after the restart",
        ((PLANE, " or state.aborts.get(n)\n", "\n"),),
        caught_by="world 3: L-7",
    ),
    Mutant(
        "abort-not-owed",
        "a driver is not notified of an end that came without it",
        (
            (
                "forewarn.core.transitions",
                "        abort_owed=abort,\n",
                "        abort_owed=False,\n",
            ),
        ),
        caught_by="world 1: L-7",
    ),
    Mutant(
        "clock-follows-the-wall",
        "the service's clock follows steps of the system's clock",
        (
            (
                "forewarn.clock",
                "        return (self._monotonic_ns() + self._offset_ns) // 1_000_000\n",
                "        return self._wall_ns() // 1_000_000\n",
            ),
        ),
        caught_by="transcript N-4-clock-step",
    ),
    Mutant(
        "step-ahead-shortens-notice",
        "notices that run when a step of the clock is followed are not put off",
        (
            (
                "forewarn.control.timekeeping",
                "                put_off(PutOff(skipped_ms))\n",
                "                pass\n",
            ),
        ),
        caught_by="transcript N-4-step-while-notices-always-run",
    ),
    Mutant(
        "restart-takes-the-wall",
        "a service that is started again goes by the system's clock while a notice runs",
        (
            (
                "forewarn.control.timekeeping",
                "        step_ms = clock.resume(self._plane.state.mark, since_ms=announced_ms)\n",
                "        step_ms = clock.resume(NO_MARK, since_ms=announced_ms)\n",
            ),
        ),
        caught_by="world 5: 6",
    ),
    Mutant(
        "stale-answer",
        "nodes go on showing the document they rendered first",
        (("forewarn.metadata.snapshot", "        if changed:\n", "        if not publication:\n"),),
        caught_by="transcript D-1-incarnation",
    ),
    Mutant(
        "older-version-shows-all",
        "an older api-version shows types it does not know",
        (
            (
                "forewarn.protocol.documents",
                '        if TYPE_SINCE.get(event.event_type, "~") <= version\n',
                "        if event\n",
            ),
        ),
        caught_by="world 4: 7",
    ),
    Mutant(
        "restart-shows-nothing",
        "after a restart the documents are not shown",
        (
            (
                CHANGES,
                "            for view in state.views.values()\n            if view.group not in",
                "            for view in ()\n            if view.group not in",
            ),
        ),
        caught_by="world 1: 8",
    ),
    Mutant(
        "deleted-vm-still-known",
        "a deleted VM is still answered",
        (
            (
                CHANGES,
                ("    gone = tuple(name for name, vm in changes.vms.items() if vm is None)\n"),
                "    gone = ()\n",
            ),
        ),
        caught_by="transcript N-1-preempt",
    ),
    Mutant(
        "history-incomplete",
        "approvals are not written to history",
        (
            (
                f"{STORE}.images",
                "        for seq, entry in enumerate(entries, start=first_seq)\n",
                (
                    "        for seq, entry in enumerate(entries, start=first_seq)\n"
                    '        if entry.action != "event.approved"\n'
                ),
            ),
        ),
        caught_by="world 1: 10",
    ),
    Mutant(
        "report-forgotten",
        "a report that the store refused is not tried again",
        ((LOOP, "            self._unreported.append((stimulus, actor))\n", "            pass\n"),),
        caught_by="transcript L-7-report-refused",
    ),
    Mutant(
        "agent-never-recovers",
        "the agent does not notice that an event has gone",
        (
            (
                "forewarn.agent.core.event_tracking",
                "            if record.gone or record.event_id in self._last_events:\n",
                "            if record:\n",
            ),
        ),
        caught_by="transcript L-1-agent",
    ),
    Mutant(
        "approved-before-all-are-prepared",
        "an agent approves for others that are not prepared",
        (
            (
                TURNS,
                "        if missing:\n",
                "        if not others:\n",
            ),
        ),
        caught_by="world 1: C-5",
    ),
    Mutant(
        "word-kept-over-a-restart",
        "a VM that was restarted goes on telling the others that it is prepared",
        (
            (
                AGENT,
                (
                    "                    record.group = 0  # the other VMs, too, must not count "
                    "on what may be undone\n"
                    "                    self._unannounce(record)\n"
                ),
                "                    pass\n",
            ),
        ),
        caught_by="transcript C-5-peer-restarted",
    ),
    Mutant(
        "nobody-asks-the-others",
        "agents that have nothing to prepare wait for the others and do not ask them",
        (
            (
                AGENT,
                "        if not record.announced:  # nothing was to be prepared\n",
                "        if not record:\n",
            ),
        ),
        caught_by="transcript C-5-nothing-to-prepare",
    ),
    Mutant(
        "old-writer-not-fenced",
        "a writer that was replaced can still write",
        (
            (
                STORE,
                '        assert self.generation, "load() makes this process the writer"\n',
                (
                    "        with self._engine.writing() as transaction:\n"
                    '            row = transaction.rows("claim", writer=self._writer)[0]\n'
                    "        self.generation, self._history_seq = int(row[0]), int(row[1])\n"
                ),
            ),
        ),
        caught_by="transcript L-7-failover-paused",
    ),
    Mutant(
        "image-forgets-a-column",
        "history keeps of a record what changed, but for the last column",
        (
            (
                "forewarn.core.records",
                "if old is not new and old != new}",
                "if old is not new and old != new and name != 'attempt'}",
            ),
        ),
        caught_by="world 1: 10",
    ),
    Mutant(
        "old-writer-begins",
        "a writer that was replaced begins what waited for being shown",
        ((CALLS, "        store.confirm()\n", "        pass\n"),),
        caught_by="transcript L-7-failover-cut-off",
    ),
    Mutant(
        "begun-although-not-published",
        "what could not be published is begun as if it were shown",
        (
            (
                PUBLISHING,
                "        if ended.error is None:\n",
                "        if ended:\n",
            ),
        ),
        caught_by="transcript L-7-publish-fails",
    ),
    Mutant(
        "published-once",
        "what could not be published is not published again",
        (
            (
                PUBLISHING,
                "        if self._failed is not None and self._again_ms <= now_ms:\n",
                "        if now_ms < 0:\n",
            ),
        ),
        caught_by="transcript L-7-publish-fails",
    ),
    Mutant(
        "driver-by-the-hosts-record",
        "an operation follows its host to another driver",
        (
            (
                DRIVERS,
                "        if operation.driver:\n            return operation.driver\n",
                "",
            ),
        ),
        caught_by="transcript R-3-driver-kept",
    ),
    Mutant(
        "hung-for-ever",
        "a call of a driver that hangs is waited for without an end",
        ((CALLS, "                if call in self._returned:\n", "                if call:\n"),),
        caught_by="transcript R-1-driver-hangs",
    ),
)
