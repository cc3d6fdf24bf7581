"""Selects the part of each change for a metadata node, and keeps the latest parts.

A node's part is everything, or the VMs of its hosts.

A moving VM belongs to its old and its new node. A moved VM stays with its old node until the new
node shows the VM.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from forewarn.protocol.documents import Document
from forewarn.replication.feed_state import FeedState
from forewarn.replication.messages import Caller, DocumentChange, Publication

FORMER_MAX = 1000
"""Maximum number of a node's former VMs and groups that are stored."""

_NOTHING = Document(incarnation=0, events=())


KEPT_BYTES = 4 * 1024 * 1024
"""Bytes of changes that are always stored: some thousand changes, minutes of a busy fleet."""

BEHIND_BYTES_MAX = 64 * 1024 * 1024
"""Maximum bytes stored for a node that is behind; a slower node receives the whole feed again."""

SCOPED_SHARE = 64
"""Fraction of both limits for a node with few hosts, which has a small feed."""


class LoggedChange(NamedTuple):
    """A change as encoded lines."""

    sequence: int
    lines: tuple[bytes, ...]
    checksum: int
    """Checksum of the feed including this change."""
    size: int


class ChangeLog:
    """Changes by position; a position is the unique place before a change."""

    def __init__(self, *, share: int = 1) -> None:
        """`share` is the fraction of the unrestricted feed's limits."""
        self._share = share
        self.next = 0
        """The position after the last change."""
        self.sequence = 0
        self.checksum = 0
        """Checksum of the feed after the last change."""
        self._first = 0
        self._before = (0, 0)
        """Sequence and checksum before the first stored change."""
        self._changes: dict[int, LoggedChange] = {}
        self._bytes = 0

    def reset(self, sequence: int) -> None:
        """Drop all changes, so that every node requires the whole feed."""
        self._changes.clear()
        self._bytes = 0
        self.next += 1
        self._first = self.next
        self.sequence, self.checksum = self._before = sequence, 0

    def append(self, sequence: int, lines: tuple[bytes, ...], checksum: int) -> None:
        """Add a change."""
        size = sum(map(len, lines))
        self._changes[self.next] = LoggedChange(sequence, lines, checksum, size)
        self._bytes += size
        self.next += 1
        self.sequence, self.checksum = sequence, checksum

    def trim(self, slowest: int) -> None:
        """Drop old changes; changes that the slowest node requires stay up to the maximum."""
        size = self._bytes * self._share
        while size > BEHIND_BYTES_MAX or (size > KEPT_BYTES and self._first < slowest):
            dropped = self._changes.pop(self._first)
            self._before = dropped.sequence, dropped.checksum
            self._bytes -= dropped.size
            self._first += 1
            size = self._bytes * self._share

    def holds(self, position: int) -> bool:
        """Return whether all changes after a position are stored."""
        return position >= self._first

    def at(self, position: int) -> LoggedChange | None:
        """Return the change after a position; None at the end of the log."""
        return self._changes.get(position)

    def position_of(self, sequence: int, checksum: int) -> int | None:
        """Return the position of a node by its last change; None if it requires the whole feed.

        Cost: O(stored changes), once for each connection.
        """
        if (sequence, checksum) == self._before:
            return self._first
        for position, change in self._changes.items():
            if (change.sequence, change.checksum) == (sequence, checksum):
                return position + 1
        return None


class ScopedFeed:
    """The feed of all nodes with the same name."""

    def __init__(self, name: str, hosts: frozenset[str] | None) -> None:
        """Start with an empty log; without `hosts`, the feed has every VM."""
        self.name = name
        self.hosts = hosts
        self.log = ChangeLog(share=1 if hosts is None else SCOPED_SHARE)
        self.leaving: dict[str, str] = {}
        """VMs that have moved to other hosts, and their views, until the new node shows them."""
        self.former: dict[str, None] = {}
        """The latest former VMs and groups of this feed, which may have requests in progress."""

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
        return self.hosts is None or not self.hosts.isdisjoint(caller.hosts)


class ScopedChange(NamedTuple):
    """The part of a change for one feed."""

    feed: ScopedFeed
    change: DocumentChange
    #: VMs that are new in this feed, or that other feeds still contain.
    arrived: frozenset[str]


class _Draft:
    """An unfinished part of a change for one feed."""

    def __init__(self) -> None:
        self.callers: list[Caller] = []
        self.gone: list[str] = []
        self.publications: dict[str, Publication] = {}
        self.arrived: set[str] = set()


class _Leaving:
    """Feeds that still serve moved VMs, by VM and by view."""

    def __init__(self) -> None:
        self._by_vm: dict[str, dict[ScopedFeed, None]] = {}
        self._by_view: dict[str, dict[ScopedFeed, int]] = {}

    def of_vm(self, vm: str) -> tuple[ScopedFeed, ...]:
        return tuple(self._by_vm.get(vm, ()))

    def of_view(self, view: str) -> Iterable[ScopedFeed]:
        return self._by_view.get(view, ())

    def keep(self, feed: ScopedFeed, vm: str, view: str) -> None:
        self.release(feed, vm)
        feed.leaving[vm] = view
        self._by_vm.setdefault(vm, {})[feed] = None
        feeds = self._by_view.setdefault(view, {})
        feeds[feed] = feeds.get(feed, 0) + 1

    def release(self, feed: ScopedFeed, vm: str) -> str | None:
        """Stop serving a VM; return its view, or None for an unknown VM."""
        view = feed.leaving.pop(vm, None)
        if view is None:
            return None
        del self._by_vm[vm][feed]
        if not self._by_vm[vm]:
            del self._by_vm[vm]
        feeds = self._by_view[view]
        feeds[feed] -= 1
        if not feeds[feed]:
            del feeds[feed]
        if not feeds:
            del self._by_view[view]
        return view

    def clear(self) -> None:
        for feeds in self._by_vm.values():
            for feed in feeds:
                feed.leaving.clear()
        self._by_vm.clear()
        self._by_view.clear()


class Scopes:
    """All feeds, and the state that defines their parts."""

    def __init__(self) -> None:
        self.state = FeedState()
        self.everything = ScopedFeed("", None)
        self._feeds: dict[str, ScopedFeed] = {}
        self._by_host: dict[str, dict[ScopedFeed, None]] = {}
        self._vms_on: dict[str, dict[str, None]] = {}
        self._hosts_of: dict[str, dict[str, int]] = {}
        """View -> host -> number of VMs on the host that read the view."""
        self._hosts_of_group: dict[str, dict[str, int]] = {}
        """Group -> host -> number of the group's VMs on the host."""
        self._leaving = _Leaving()

    def __iter__(self) -> Iterator[ScopedFeed]:
        """Yield every feed."""
        yield self.everything
        yield from self._feeds.values()

    @property
    def hosts(self) -> AbstractSet[str]:
        """The hosts with VMs."""
        return self._vms_on.keys()

    def latest(self, name: str) -> int:
        """Return the last change that a node must show."""
        return self._feeds.get(name, self.everything).log.sequence

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
        feed = self._feeds[name] = ScopedFeed(name, hosts)
        feed.log.reset(self.everything.log.sequence)
        for host in hosts:
            self._by_host.setdefault(host, {})[feed] = None
        return feed

    def close(self, name: str) -> None:
        """Drop a feed without nodes."""
        feed = self._feeds.pop(name)
        for vm in tuple(feed.leaving):
            self._leaving.release(feed, vm)
        for host in feed.hosts or ():
            self._by_host[host].pop(feed)

    def whole(self, feed: ScopedFeed) -> DocumentChange:
        """Return the whole of one feed, up to its last change; O(VMs of the feed)."""
        sequence = feed.log.sequence
        if feed.hosts is None:
            return self.state.whole(sequence)
        names = {vm for host in feed.hosts for vm in self._vms_on.get(host, ())} | {*feed.leaving}
        callers = [self.state.callers[name] for name in sorted(names)]
        views = dict.fromkeys(caller.view for caller in callers)
        shown = (self.state.publications.get(view) for view in views)
        publications = tuple(each for each in shown if each is not None)
        return DocumentChange(
            sequence, whole=True, callers=tuple(callers), publications=publications
        )

    def shows_group(self, feed: ScopedFeed, group: str) -> bool:
        """Whether VMs of a group are on a feed's hosts."""
        hosts = self._hosts_of_group.get(group, {})
        leaving = (self.state.callers[vm].group for vm in feed.leaving)
        return any(host in hosts for host in feed.hosts or ()) or group in leaving

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

    def apply(self, change: DocumentChange) -> list[ScopedChange]:
        """Apply a change; return its part for each feed of some hosts.

        Cost: O(change + hosts of its views). After a whole change, every feed sends its own whole.
        """
        before = self.state.callers
        old = {caller.vm: before.get(caller.vm) for caller in change.callers}
        old.update((vm, before.get(vm)) for vm in change.gone)
        self.state.apply(change)
        if change.whole:
            self._vms_on.clear()
            self._hosts_of.clear()
            self._hosts_of_group.clear()
            self._leaving.clear()
        else:
            for caller in old.values():
                if caller is not None:
                    self._unplace(caller)
        for caller in change.callers:
            self._place(caller)
        return [] if change.whole or not self._feeds else self._cut(change, old)

    def serving_still(self, vms: Iterable[str]) -> dict[ScopedFeed, None]:
        """Return the feeds that still serve some of these moved VMs."""
        return dict.fromkeys(feed for vm in vms for feed in self._leaving.of_vm(vm))

    def left(self, feed: ScopedFeed, vms: Iterable[str]) -> DocumentChange | None:
        """Return the change that removes moved VMs from a feed, or None without such VMs."""
        gone = [vm for vm in vms if vm in feed.leaving]
        views = {feed.leaving[vm] for vm in gone}
        for vm in gone:
            feed.dropped(self.state.callers[vm])
            self._leaving.release(feed, vm)
        if not gone:
            return None
        unused = tuple(
            Publication(view, enabled=False, document=_NOTHING)
            for view in sorted(views)
            if not self._uses(feed, view)
        )
        sequence = self.everything.log.sequence
        return DocumentChange(sequence, gone=tuple(gone), publications=unused)

    def _cut(self, change: DocumentChange, old: dict[str, Caller | None]) -> list[ScopedChange]:
        drafts: dict[ScopedFeed, _Draft] = {}
        for publication in change.publications:
            for feed in self._showing(publication.view):
                drafts.setdefault(feed, _Draft()).publications[publication.view] = publication
        for caller in change.callers:
            self._move(caller, old[caller.vm], drafts)
        for vm in change.gone:
            caller_before = old[vm]
            if caller_before is not None:
                self._remove(caller_before, drafts)
        return [
            ScopedChange(
                feed,
                DocumentChange(
                    change.sequence,
                    callers=tuple(draft.callers),
                    gone=tuple(draft.gone),
                    publications=tuple(draft.publications.values()),
                ),
                frozenset(draft.arrived),
            )
            for feed, draft in drafts.items()
        ]

    def _move(
        self, caller: Caller, before: Caller | None, drafts: dict[ScopedFeed, _Draft]
    ) -> None:
        here = self._of(caller)
        was = self._of(before) if before is not None else {}
        left = [feed for feed in was if feed not in here]
        for feed in here:
            draft = drafts.setdefault(feed, _Draft())
            draft.callers.append(caller)
            self._leaving.release(feed, caller.vm)
            if left or before is None or feed not in was or before.view != caller.view:
                draft.arrived.add(caller.vm)
                shown = self.state.publications.get(caller.view)
                if shown is not None:
                    draft.publications[caller.view] = shown
        if before is None:
            return
        for feed in was:
            if feed in here and before.view != caller.view:
                self._withdraw(feed, before.view, drafts)
        if left and not here:  # no node will show the VM, so other nodes must not wait
            self._remove(before, drafts)
            return
        for feed in left:
            self._leaving.keep(feed, caller.vm, before.view)

    def _remove(self, caller: Caller, drafts: dict[ScopedFeed, _Draft]) -> None:
        for feed in dict.fromkeys((*self._of(caller), *self._leaving.of_vm(caller.vm))):
            view = self._leaving.release(feed, caller.vm)
            if view is None and feed.has(caller):
                view = caller.view
            if view is not None:
                self._drop(feed, caller, drafts)
                self._withdraw(feed, view, drafts)

    def _of(self, caller: Caller) -> dict[ScopedFeed, None]:
        """Return the feeds of the hosts on which a VM may run."""
        return {feed: None for host in caller.hosts for feed in self._by_host.get(host, ())}

    def _drop(self, feed: ScopedFeed, caller: Caller, drafts: dict[ScopedFeed, _Draft]) -> None:
        draft = drafts.setdefault(feed, _Draft())
        draft.gone.append(caller.vm)
        feed.dropped(caller)

    def _withdraw(self, feed: ScopedFeed, view: str, drafts: dict[ScopedFeed, _Draft]) -> None:
        """Withdraw a document from a node if none of the node's VMs read it."""
        if not self._uses(feed, view):
            draft = drafts.setdefault(feed, _Draft())
            draft.publications[view] = Publication(view, enabled=False, document=_NOTHING)

    def _showing(self, view: str) -> dict[ScopedFeed, None]:
        """Return the feeds with VMs that read this view."""
        feeds = {
            feed: None
            for host in self._hosts_of.get(view, ())
            for feed in self._by_host.get(host, ())
        }
        feeds.update(dict.fromkeys(self._leaving.of_view(view)))
        return feeds

    def _uses(self, feed: ScopedFeed, view: str) -> bool:
        hosts = self._hosts_of.get(view, {})
        kept = feed in self._leaving.of_view(view)
        return kept or any(host in hosts for host in feed.hosts or ())

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
