"""Selects the part of the feed for each metadata node: everything, or the VMs of its hosts.

A moving VM belongs to its old and its new node. A moved VM stays with its old node until the new
node shows the VM.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from hashlib import blake2b
from typing import NamedTuple

from forewarn_metadata.replication.feed_state import FeedState
from forewarn_metadata.replication.messages import Caller, DocumentChange, encoded, part_body

#: Maximum number of a node's former VMs and groups that are stored.
FORMER_MAX = 1000

#: Length of the digest of a node's part.
DIGEST_BYTES = 12


def digest_of(body: bytes) -> str:
    """Return the digest of an encoded part, which proves that two parts are equal. Source: M-1."""
    return blake2b(body, digest_size=DIGEST_BYTES).hexdigest()


class ScopedFeed:
    """The part of the feed for one node."""

    def __init__(self, name: str, hosts: frozenset[str], sequence: int) -> None:
        """Start with the VMs of some hosts, as of a change."""
        self.name = name
        self.hosts = hosts
        #: The last change of this part.
        self.sequence = sequence
        #: Digest of the encoded part; empty: not computed since the last change.
        self.digest = ""
        #: VMs that have moved away, as they were before, until the new node shows them.
        self.leaving: dict[str, Caller] = {}
        #: The latest former VMs and groups of this feed, which may have requests in progress.
        self.former: dict[str, None] = {}

    def changed(self, sequence: int) -> None:
        """Record that a change affects this part."""
        self.sequence, self.digest = sequence, ""

    def dropped(self, caller: Caller) -> None:
        """Record that this feed no longer serves a VM."""
        for name in (caller.vm, caller.group):
            self.former.pop(name, None)
            self.former[name] = None
        while len(self.former) > FORMER_MAX:
            del self.former[next(iter(self.former))]

    def serves(self, caller: Caller | None) -> bool:
        """Return whether this feed includes a VM."""
        if caller is None:
            return False
        return self.has(caller) or caller.vm in self.leaving

    def has(self, caller: Caller) -> bool:
        """Return whether a VM may run on this feed's hosts."""
        return not self.hosts.isdisjoint(caller.hosts)


class EncodedPart(NamedTuple):
    """A node's part as the body of an answer."""

    body: bytes
    digest: str


class _Leaving:
    """Feeds that still serve moved VMs, by VM and by view."""

    def __init__(self) -> None:
        self._by_vm: dict[str, dict[ScopedFeed, None]] = {}
        self._by_view: dict[str, dict[ScopedFeed, int]] = {}

    def of_vm(self, vm: str) -> tuple[ScopedFeed, ...]:
        return tuple(self._by_vm.get(vm, ()))

    def of_view(self, view: str) -> Iterable[ScopedFeed]:
        return self._by_view.get(view, ())

    def keep(self, feed: ScopedFeed, caller: Caller) -> None:
        self.release(feed, caller.vm)
        feed.leaving[caller.vm] = caller
        self._by_vm.setdefault(caller.vm, {})[feed] = None
        feeds = self._by_view.setdefault(caller.view, {})
        feeds[feed] = feeds.get(feed, 0) + 1

    def release(self, feed: ScopedFeed, vm: str) -> None:
        """Stop serving a VM, if the feed keeps it."""
        caller = feed.leaving.pop(vm, None)
        if caller is None:
            return
        del self._by_vm[vm][feed]
        if not self._by_vm[vm]:
            del self._by_vm[vm]
        feeds = self._by_view[caller.view]
        feeds[feed] -= 1
        if not feeds[feed]:
            del feeds[feed]
        if not feeds:
            del self._by_view[caller.view]


class Scopes:
    """All parts, and the state that defines them."""

    def __init__(self) -> None:
        self.state = FeedState()
        #: The last change of any part.
        self.sequence = 0
        self._feeds: dict[str, ScopedFeed] = {}
        self._by_host: dict[str, dict[ScopedFeed, None]] = {}
        self._vms_on: dict[str, dict[str, None]] = {}
        #: View -> host -> number of VMs on the host that read the view.
        self._hosts_of: dict[str, dict[str, int]] = {}
        #: Group -> host -> number of the group's VMs on the host.
        self._hosts_of_group: dict[str, dict[str, int]] = {}
        self._leaving = _Leaving()
        #: View -> its document, encoded; filled when a node needs it.
        self._documents: dict[str, bytes] = {}

    def __iter__(self) -> Iterator[ScopedFeed]:
        """Yield every node's feed."""
        yield from self._feeds.values()

    @property
    def hosts(self) -> AbstractSet[str]:
        """The hosts with VMs."""
        return self._vms_on.keys()

    def latest(self, name: str) -> int:
        """Return the last change that a node must show; a worker must show every change."""
        feed = self._feeds.get(name)
        return self.sequence if feed is None else feed.sequence

    def has(self, name: str) -> bool:
        """Return whether a node serves some of these hosts."""
        return name in self._feeds

    def is_at(self, name: str, vm: str) -> bool:
        """Return whether a VM may run on the hosts of a node."""
        feed, caller = self._feeds.get(name), self.state.callers.get(vm)
        return feed is not None and caller is not None and feed.has(caller)

    def hosts_of(self, name: str) -> frozenset[str] | None:
        """Return the hosts that a node serves; None if the node never connected."""
        feed = self._feeds.get(name)
        return feed.hosts if feed is not None else None

    def open(self, name: str, hosts: frozenset[str]) -> ScopedFeed:
        """Return the feed of a node that serves these hosts; create a feed if the hosts changed."""
        feed = self._feeds.get(name)
        if feed is not None and feed.hosts == hosts:
            return feed
        if feed is not None:
            self.close(name)
        feed = self._feeds[name] = ScopedFeed(name, hosts, self.sequence)
        for host in hosts:
            self._by_host.setdefault(host, {})[feed] = None
        return feed

    def shown(self, name: str, hosts: frozenset[str]) -> ScopedFeed:
        """Return a node's feed to read; without one, a feed of these hosts that is not stored."""
        return self._feeds.get(name) or ScopedFeed(name, hosts, self.sequence)

    def close(self, name: str) -> None:
        """Drop a feed without nodes."""
        feed = self._feeds.pop(name)
        for vm in tuple(feed.leaving):
            self._leaving.release(feed, vm)
        for host in feed.hosts:
            self._by_host[host].pop(feed)

    def part(self, feed: ScopedFeed) -> EncodedPart:
        """Return the whole part of one feed; O(VMs of the feed)."""
        callers_now, names = self.state.callers, {*feed.leaving}
        for host in feed.hosts:
            names.update(self._vms_on.get(host, ()))
        callers = [feed.leaving.get(name) or callers_now[name] for name in sorted(names)]
        documents = []
        for view in dict.fromkeys(caller.view for caller in callers):
            document = self._documents.get(view)
            if document is None and (shown := self.state.publications.get(view)) is not None:
                document = self._documents[view] = encoded(shown)
            if document is not None:
                documents.append(document)
        body = part_body(encoded(callers), documents)
        feed.digest = feed.digest or digest_of(body)
        return EncodedPart(body, feed.digest)

    def shows_group(self, feed: ScopedFeed, group: str) -> bool:
        """Whether VMs of a group are on a feed's hosts."""
        hosts = self._hosts_of_group.get(group, {})
        leaving = (caller.group for caller in feed.leaving.values())
        return any(host in hosts for host in feed.hosts) or group in leaving

    def hosts_shown(self, change: DocumentChange) -> frozenset[str]:
        """Return the hosts of the VMs in a change, after the change."""
        hosts = {host for caller in change.callers for host in caller.hosts}
        for each in change.publications:
            hosts.update(self._hosts_of.get(each.view, ()))
        return frozenset(hosts)

    def unserved(self, change: DocumentChange) -> frozenset[str]:
        """Return hosts without a feed to which a change moves VMs from hosts with a feed."""
        hosts: set[str] = set()
        for caller in change.callers:
            before = self.state.callers.get(caller.vm)
            if before is not None and before.hosts != caller.hosts and self._of(before):
                hosts.update(host for host in caller.hosts if not self._by_host.get(host))
        return frozenset(hosts)

    def apply(self, change: DocumentChange) -> dict[ScopedFeed, set[str]]:
        """Apply a change; return each changed feed, with VMs that other feeds still contain.

        A whole change, which repeats a failed publication, ends no move. Cost: O(change + hosts of
        its views), and O(feeds) for a whole change.
        """
        before = self.state.callers
        old = {caller.vm: before.get(caller.vm) for caller in change.callers}
        gone = [vm for vm in before if vm not in old] if change.whole else change.gone
        old.update((vm, before.get(vm)) for vm in gone)
        self.state.apply(change)
        self.sequence = change.sequence
        for publication in change.publications:
            self._documents.pop(publication.view, None)
        if change.whole:
            self._documents.clear()
            self._vms_on.clear()
            self._hosts_of.clear()
            self._hosts_of_group.clear()
        else:
            for caller in old.values():
                if caller is not None:
                    self._unplace(caller)
        for caller in change.callers:
            self._place(caller)
        changed = self._changed(change, old, gone) if self._feeds else {}
        for feed in changed:
            feed.changed(change.sequence)
        return changed

    def remove_moved(self, vms: Iterable[str]) -> list[ScopedFeed]:
        """Stop serving moved VMs at their old nodes; return the changed feeds."""
        changed: dict[ScopedFeed, None] = {}
        for vm in vms:
            for feed in self._leaving.of_vm(vm):
                feed.dropped(feed.leaving[vm])
                self._leaving.release(feed, vm)
                feed.changed(self.sequence)
                changed[feed] = None
        return list(changed)

    def _changed(
        self, change: DocumentChange, old: dict[str, Caller | None], gone: Iterable[str]
    ) -> dict[ScopedFeed, set[str]]:
        changed: dict[ScopedFeed, set[str]] = {}
        moved = list(change.callers)
        if change.whole:
            changed = {feed: set() for feed in self._feeds.values()}
            befores = [(caller, old[caller.vm]) for caller in moved]
            moved = [now for now, was in befores if was is not None and was.hosts != now.hosts]
        for publication in () if change.whole else change.publications:
            for feed in self._showing(publication.view):
                changed.setdefault(feed, set())
        for caller in moved:
            self._move(caller, old[caller.vm], changed)
        for vm in gone:
            caller_before = old[vm]
            if caller_before is not None:
                self._remove(caller_before, changed)
        return changed

    def _move(
        self, caller: Caller, before: Caller | None, changed: dict[ScopedFeed, set[str]]
    ) -> None:
        here = self._of(caller)
        was = self._of(before) if before is not None else {}
        left = [feed for feed in was if feed not in here]
        for feed in here:
            arrived = changed.setdefault(feed, set())
            self._leaving.release(feed, caller.vm)
            if left or before is None or feed not in was or before.view != caller.view:
                arrived.add(caller.vm)
        if before is None:
            return
        if left and not here:  # no node will show the VM, so other nodes must not wait
            self._remove(before, changed)
            return
        for feed in left:
            self._leaving.keep(feed, before)

    def _remove(self, caller: Caller, changed: dict[ScopedFeed, set[str]]) -> None:
        for feed in dict.fromkeys((*self._of(caller), *self._leaving.of_vm(caller.vm))):
            self._leaving.release(feed, caller.vm)
            changed.setdefault(feed, set())
            feed.dropped(caller)

    def _of(self, caller: Caller) -> dict[ScopedFeed, None]:
        """Return the feeds of the hosts on which a VM may run."""
        return {feed: None for host in caller.hosts for feed in self._by_host.get(host, ())}

    def _showing(self, view: str) -> dict[ScopedFeed, None]:
        """Return the feeds with VMs that read this view."""
        feeds = {
            feed: None
            for host in self._hosts_of.get(view, ())
            for feed in self._by_host.get(host, ())
        }
        feeds.update(dict.fromkeys(self._leaving.of_view(view)))
        return feeds

    def _place(self, caller: Caller) -> None:
        for host in caller.hosts:
            self._vms_on.setdefault(host, {})[caller.vm] = None
            for of, name in self._counted(caller):
                hosts = of.setdefault(name, {})
                hosts[host] = hosts.get(host, 0) + 1

    def _unplace(self, caller: Caller) -> None:
        for host in caller.hosts:
            vms = self._vms_on[host]
            vms.pop(caller.vm)
            if not vms:
                del self._vms_on[host]
            for of, name in self._counted(caller):
                hosts = of[name]
                hosts[host] -= 1
                if not hosts[host]:
                    del hosts[host]
                    if not hosts:
                        del of[name]

    def _counted(self, caller: Caller) -> tuple[tuple[dict[str, dict[str, int]], str], ...]:
        return (self._hosts_of, caller.view), (self._hosts_of_group, caller.group)
