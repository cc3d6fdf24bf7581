"""An independent check that a plan keeps every rule.

Source: F-3; invariant 19: a plan in force passes this check. The checker shares values with the
planner, but no functions. A plan does not contain approvals and gates, so they are not checked.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator

from forewarn_base.values import value
from forewarn_core.planning.fleet import Fleet, FleetHost
from forewarn_core.planning.plan import FleetState, Plan, PlanEntry
from forewarn_core.planning.policy import MaintenancePolicy, Scope
from forewarn_core.planning.wall_clock import open_throughout

Found = Iterator[tuple[str, str]]
#: One piece of work: host, VMs by group, end, its VM (None: it occupies the host), whether it
#: disturbs the groups, destinations.
Work = tuple[str, Counter[str], int, int | None, bool, frozenset[str]]

_FOREVER_MS = 1 << 62
#: In larger fault domains the planner compares only some hosts by their budgets.
_COMPARED_MAX = 64


@value
class Finding:
    """One broken rule, and its place in the plan."""

    rule: str
    sentence: str


def check(
    plan: Plan, fleet: Fleet, *, state: FleetState, policy: MaintenancePolicy
) -> tuple[Finding, ...]:
    """Return every rule that a plan breaks; a plan that breaks none may come into force."""
    return tuple(
        Finding(rule, text)
        for rule, text in _Checker(plan, fleet, state=state, policy=policy).all()
    )


class _Checker:
    def __init__(
        self, plan: Plan, fleet: Fleet, *, state: FleetState, policy: MaintenancePolicy
    ) -> None:
        self.plan, self.fleet, self.state, self.policy = plan, fleet, state, policy
        self.hosts = {host.name: host for host in fleet.hosts}
        self.group = list(map([each.name for each in fleet.groups].__getitem__, fleet.vm_groups))
        self.owner = {group.name: group.owner for group in fleet.groups}
        self.keeps = {
            each.name: each for each in fleet.groups if each.keep_apart or each.keep_together
        }
        self.at = list(map([each.name for each in fleet.hosts].__getitem__, fleet.vm_hosts))
        self.on: dict[str, Counter[str]] = defaultdict(Counter)
        for (host, group), count in Counter(zip(self.at, self.group, strict=True)).items():
            self.on[host][group] = count
        #: Host -> earliest start of declared work.
        self.hand_backs = {each.host: each for each in plan.request.hand_backs}
        #: Host -> number of its fault domain.
        self.zone: dict[str, int] = {}
        numbers: dict[tuple[str, int], int] = {}
        for each in fleet.hosts:
            self.zone[each.name] = numbers.setdefault(each.fault_zone, len(numbers))
        #: Group and fault domain -> VMs, as the plan moves them.
        self.domains: Counter[tuple[str, int]] = Counter()
        if plan.request.move_s:
            self.domains.update(zip(self.group, map(self.zone.__getitem__, self.at), strict=True))
        #: Group with kept labels -> its VMs.
        self.kept: dict[str, list[int]] = {name: [] for name in self.keeps}
        for vm, group in enumerate(self.group) if self.kept else ():
            if group in self.kept:
                self.kept[group].append(vm)
        self.vms: dict[str, set[int]] = defaultdict(set)
        for vm, host in enumerate(self.at):
            self.vms[host].add(vm)
        self.size: Counter[str] = Counter()
        for host, size in zip(self.at, fleet.vm_sizes, strict=True):
            self.size[host] += size
        #: Hosts that are not in the fleet, or whose VMs go to a host that is not.
        self.strangers = {entry.host for entry in plan.entries if not self._is_known(entry)}
        #: What an emergency overrides, and the names of the rules that it waives. Source: T-6.
        self.emergency = plan.request.exemption.emergency
        names = plan.request.exemption.waived if self.emergency else ()
        self.waived = frozenset(names)
        self.waves = self._entries_by_wave()
        self.works, self.limits = list(self._works()), self._limits()

    def _is_known(self, entry: PlanEntry) -> bool:
        there = {entry.host, *(move.to_host for move in entry.moves)} - {""}
        return there <= self.hosts.keys()

    def _entries_by_wave(self) -> dict[int, list[PlanEntry]]:
        waves: dict[int, list[PlanEntry]] = defaultdict(list)
        for entry in self.plan.entries:
            if entry.host not in self.strangers:
                waves[entry.wave].append(entry)
        return waves

    def all(self) -> Found:
        yield from self._whole()
        yield from self._tests()
        ends, rested = 0, dict(self.state.owners_disturbed)
        for number, entries in sorted(self.waves.items()):
            at, start = min(e.shown_ms for e in entries), min(e.earliest_start_ms for e in entries)
            soonest = ends + self.policy.pause_s * 1000 if ends else self.state.paused_until_ms
            soonest = ends if self.emergency else soonest
            if at < ends or start < soonest:
                yield "waves", f"wave {number} begins too soon after the one before it"
            rests = self.policy.owner_rest_s and not self.emergency
            for owner in self._owners(entries) & rested.keys() if rests else ():
                if at < rested[owner] or start < rested[owner] + self.policy.owner_rest_s * 1000:
                    yield "owner-rest", f"owner {owner} is disturbed again in wave {number}"
            for entry in entries:
                yield from self._times(entry)
            works = [work for work in self.works if work[2] > at]
            yield from self._together(number, entries, works)
            key = self.plan.request.failure_domain
            if key and len({_values(self.hosts[each.host]).get(key) for each in entries}) > 1:
                yield "failure-domain", f"wave {number} has hosts of two failure domains"
            if self.plan.request.move_s:
                yield from self._check_moves(entries, works)
            ends = max(entry.latest_end_ms for entry in entries)
            rested |= dict.fromkeys(self._owners(entries), ends)

    def _whole(self) -> Found:
        plan = self.plan
        named = [entry.host for entry in plan.entries] + [name for name, _ in plan.blocked]
        wanted = set(plan.request.hosts) - set(self.state.done)
        if len(named) != len(set(named)) or set(named) != wanted:
            yield "complete", "a host is missing, planned twice, or was not requested"
        if plan.parent != (self.state.in_force.id if self.state.in_force else ""):
            yield "parent", "the parent of the plan is not the plan in force"
        for host in sorted(self.strangers):
            yield "unknown-host", f"{host} or a destination of its VMs is not in the fleet"
        placed = {(wave.number, host) for wave in plan.waves for host in wave.hosts}
        if placed != {(entry.wave, entry.host) for entry in plan.entries}:
            yield "waves", "the waves and the entries of the plan differ"
        flags = [wave.canary for wave in plan.waves]
        most = 0 if plan.request.canary_hosts or plan.parent else self.policy.canary_count
        too_large = most and plan.waves and len(plan.waves[0].hosts) > most
        if flags != sorted(flags, reverse=True) or (most and flags and not flags[0]) or too_large:
            yield "canary", "the first wave is not a canary wave of the configured size"
        stated = {each.label: (each.samples, each.duration_s) for each in plan.learned}
        if stated != self._learned() or len(stated) != len(plan.learned):
            yield "durations", "the learned durations are not those of the samples"
        if plan.bound.waves > len(self.waves):
            yield (
                "bound",
                f"{len(self.waves)} waves are fewer than the lower bound of {plan.bound.waves}",
            )

    def _tests(self) -> Found:
        entries = {entry.host: entry for entry in self.plan.entries}
        for order in self.plan.request.orders:
            first = set(order.first) - set(self.state.done)
            ends = [entries[host].latest_end_ms for host in first & entries.keys()]
            observed = max([order.ended_ms, *ends]) + order.observation_s * 1000
            for host in entries.keys() & set(order.after):
                if first - entries.keys() or entries[host].earliest_start_ms < observed:
                    yield "test-first", f"{host} starts before its owner's test is observed"

    def _times(self, entry: PlanEntry) -> Found:
        request, host, start = self.plan.request, entry.host, entry.earliest_start_ms
        length = (request.move_s + self._work_s(self.hosts[host]) + request.return_s) * 1000
        notice = entry.latest_start_ms - entry.shown_ms
        if entry.shown_ms < self.plan.made_ms or notice < self.policy.notice_s * 1000:
            yield "notice", f"{host} gets notice too late"
        lengths = {entry.earliest_end_ms - start, entry.latest_end_ms - entry.latest_start_ms}
        if not entry.shown_ms <= start <= entry.latest_start_ms or lengths != {length}:
            yield "times", f"{host} starts before its notice begins, or has a wrong duration"
        soonest = [request.earliest_ms, *(at for name, at, _ in request.postponed if name == host)]
        if start < max(soonest):
            yield "earliest", f"{host} starts too early"
        waits = self.hand_backs.get(host)
        chosen = waits and {start, entry.latest_start_ms} == {waits.at_ms}
        if waits and not chosen and start < (waits.otherwise_ms or waits.at_ms):
            yield "hand-back", f"{host} starts before its owners hand it back"
        if request.deadline_ms and entry.latest_end_ms > request.deadline_ms:
            yield "deadline", f"{host} ends after the deadline"
        if not (self.emergency or self._open(self.hosts[host], start, entry.latest_end_ms)):
            yield "window", f"the work on {host} is in closed time"

    def _learned(self) -> dict[str, tuple[int, int]]:
        """Return the number of samples and the duration in seconds of each label."""
        key, times = self.policy.duration_label, defaultdict[str, list[int]](list)
        for sample in self.state.samples if self.policy.duration_percentile else ():
            pairs = dict(label.split("=", 1) for label in sample.labels)
            if not key:
                times[""].append(sample.duration_s)
            elif key in pairs:
                times[f"{key}={pairs[key]}"].append(sample.duration_s)
        figures: dict[str, tuple[int, int]] = {}
        for label, each in times.items():
            enough = len(each) >= self.policy.duration_samples
            shares = (
                length
                for length in sorted(each)
                if sum(other <= length for other in each) * 100
                >= self.policy.duration_percentile * len(each)
            )
            if enough:
                figures[label] = len(each), next(shares)
        return figures

    def _work_s(self, host: FleetHost) -> int:
        key = self.policy.duration_label
        label = f"{key}={_values(host).get(key, '')}" if key else ""
        stated_s = {each.label: each.duration_s for each in self.plan.learned}
        return stated_s.get(label, self.plan.request.duration_s)

    def _open(self, host: FleetHost, start_ms: int, end_ms: int) -> bool:
        if any(start_ms < to_ms and from_ms < end_ms for from_ms, to_ms in self.policy.freezes):
            return False
        groups = +self.on[host.name]  # windows may name groups
        windows = tuple(
            each
            for each in self.policy.windows
            if set(each.hosts) <= _labels(host)
            and (each.groups is None or not groups.keys().isdisjoint(each.groups))
        )
        return not windows or open_throughout(windows, start_ms, end_ms)

    def _works(self) -> Iterator[Work]:
        """Yield the hosts that other work and failures disturb, with the duration."""
        for name in set(self.state.failed) & self.hosts.keys():
            yield name, self.on[name].copy(), _FOREVER_MS, None, True, frozenset()
        for live in self.state.live:
            if live.host in self.hosts:
                on, ends = self.on[live.host].copy(), live.ends_ms or _FOREVER_MS
                on = on if live.vm is None else Counter([self.group[live.vm]])
                disturbs = live.vm is None or live.disturbs_groups
                yield live.host, on, ends, live.vm, disturbs, frozenset(live.destinations)

    def _together(self, number: int, entries: list[PlanEntry], works: list[Work]) -> Found:
        zones: dict[str, set[tuple[str, int]]] = defaultdict(set)
        busy = {work[0] for work in works if work[3] is None}
        vms = {work[3] for work in works if work[3] is not None}
        ours = [(entry.host, self.on[entry.host]) for entry in entries]
        for host, on, disturbs in [(*w[:2], w[4]) for w in works] + [
            (*each, True) for each in ours
        ]:
            for group in on if disturbs else ():
                zones[group].add(self.hosts[host].fault_zone)
        for entry in entries:
            if entry.host in busy:
                yield "one-at-a-time", f"{entry.host} has other work in wave {number}"
            if any(entry.host in arrivals for *_, arrivals in works):
                yield "arrivals", f"VMs arrive on {entry.host} in wave {number}"
            if set(entry.groups) != set(self.on[entry.host]):
                yield "groups", f"{entry.host}: the notified groups differ from its groups"
        for group in {group for _, on in ours for group in on}:
            if len(zones[group]) > 1 and "fault-domain" not in self.waived:
                text = f"group {group} is disturbed in two fault domains in wave {number}"
                yield "fault-domain", text
        if self.limits:
            yield from self._budgets(entries, busy, vms, number=number)

    def _budgets(
        self,
        entries: list[PlanEntry],
        busy: set[str],
        vms: set[int],
        *,
        number: int,
    ) -> Found:
        used: Counter[tuple[Scope, str]] = Counter()
        whole = busy.union(entry.host for entry in entries)
        for host in whole:
            used.update(self._taken([host], self.on[host]))
        for vm in vms:  # its work follows it, counts once, and does not count for its host
            if self.at[vm] not in whole:
                used.update(self._taken([], Counter([self.group[vm]])))
        ours = {key for entry in entries for key in self._taken([entry.host], self.on[entry.host])}
        for key in ours & self.limits.keys():
            if used[key] > self.limits[key]:
                yield "budget", f"{key[0].value} {key[1]}: {used[key]} at once in wave {number}"

    def _limits(self) -> dict[tuple[Scope, str], int]:
        budgets = (*self.policy.budgets, *self.plan.request.budgets)
        limits: dict[tuple[Scope, str], int] = {}
        if "budgets" in self.waived:
            return limits
        totals = self._taken(self.hosts if budgets else (), Counter(self.group))
        for budget in budgets:
            for key in totals:
                if key[0] is budget.scope and budget.name in {"", key[1]}:
                    limits[key] = min(budget.most(totals[key]), limits.get(key, _FOREVER_MS))
        return limits

    def _taken(self, names: Iterable[str], on: Counter[str]) -> dict[tuple[Scope, str], int]:
        taken_by: dict[tuple[Scope, str], int] = defaultdict(int)
        for host in map(self.hosts.__getitem__, names):
            places = [(Scope.FLEET, ""), (Scope.ZONE, host.zone), (Scope.RACK, host.rack)]
            for key in (*places, *((Scope.LABEL, label) for label in _labels(host))):
                taken_by[key] += 1
        for group, count in on.items():
            taken_by[Scope.GROUP, group] += count
            if self.owner[group]:
                taken_by[Scope.OWNER, self.owner[group]] += count
        return taken_by

    def _owners(self, entries: Iterable[PlanEntry]) -> set[str]:
        return {self.owner[group] for entry in entries for group in entry.groups} - {""}

    def _check_moves(self, entries: list[PlanEntry], works: list[Work]) -> Found:
        """Check the destinations of a wave's VMs, then move the VMs there."""
        moves = {move.vm: (entry.host, move.to_host) for entry in entries for move in entry.moves}
        hosts = {entry.host for entry in entries}
        shut = hosts | {host for host, *_ in works}
        left = {vm for host in hosts for vm in self.vms[host]}
        if left != moves.keys() or any(self.at[vm] != host for vm, (host, _) in moves.items()):
            yield "moves", "not exactly the VMs on the hosts of a wave move"
        chosen = {vm for vm, (host, _) in moves.items() if self.hosts[host].scheduled}
        if chosen != {vm for vm, (_, there) in moves.items() if not there}:
            yield "moves", "a VM has no destination, or one that its driver does not obey"
        moves = {vm: move for vm, move in moves.items() if move[1]}
        yield from self._destinations(moves, shut)
        yield from self._apart(moves, shut)
        if self.plan.request.return_s:  # their old hosts received no VM and have room
            for vm, (host, there) in moves.items():
                self.size[there] -= self.fleet.vm_sizes[vm]
                self._count_domain(vm, there, host)
            return
        for vm, (host, there) in moves.items():
            self._move(vm, host, there)

    def _move(self, vm: int, host: str, there: str) -> None:
        """Place a VM on another host for all later waves."""
        self.size[host] -= self.fleet.vm_sizes[vm]
        group, on = self.group[vm], self.on[host]
        on[group] -= 1
        if on[group] <= 0:
            del on[group]
        self.on[there][group] += 1
        self.at[vm] = there
        self.vms[host].discard(vm)
        self.vms[there].add(vm)

    def _destinations(self, moves: dict[int, tuple[str, str]], shut: set[str]) -> Found:
        """Check that VMs can be moved to their destinations, and count them there."""
        for vm, (host, there) in moves.items():
            size, here, place = self.fleet.vm_sizes[vm], self.hosts[host], self.hosts[there]
            self.size[there] += size
            self._count_domain(vm, host, there)
            if there in shut:
                yield "arrivals", f"VM {vm} arrives on {there}, which is worked on"
            if not size or self.size[there] > place.capacity:
                yield "capacity", f"{there} has no room for VM {vm}"
            if (here.zone, here.driver) != (place.zone, place.driver) or place.scheduled:
                yield "moves", f"VM {vm} cannot be moved from {host} to {there}"

    def _count_domain(self, vm: int, host: str, there: str) -> None:
        zone, other, group = self.zone[host], self.zone[there], self.group[vm]
        if zone != other:
            self.domains[group, zone] -= 1
            self.domains[group, other] += 1

    def _apart(self, moves: dict[int, tuple[str, str]], shut: set[str]) -> Found:
        """Check that no VM was moved nearer to its group than an open host made necessary.

        If several VMs of a group move in the wave, the order in which they got their destinations
        is unknown. Then only other fault domains than the old one count, with room for the largest
        of these VMs, and labels are not checked.
        """
        near_vms = [
            vm
            for vm, (_, there) in moves.items()
            if self.domains[self.group[vm], self.zone[there]] > 1 or self.group[vm] in self.kept
        ]
        if not near_vms:
            return
        movers = Counter(self.group[vm] for vm in moves)
        largest, arrived = Counter[str](), Counter[tuple[str, str]]()
        for vm, (_, there) in moves.items():
            group = self.group[vm]
            largest[group] = max(largest[group], self.fleet.vm_sizes[vm])
            arrived[there, group] += 1
        rooms = self._rooms(shut)
        for vm in near_vms:
            (host, there), group = moves[vm], self.group[vm]
            alone = movers[group] == 1
            if group in self.kept and not alone:
                continue
            rank, here = self._nearness(vm, moves, arrived), self.hosts[host]
            limit = self.limits.get((Scope.GROUP, group), _FOREVER_MS)
            beyond = self.on[there][group] + arrived[there, group] > limit
            for zone, names in rooms.get((here.zone, here.driver), {}).items():
                levels = 3 if alone and len(names) <= _COMPARED_MAX else 2
                levels = levels if alone or zone != self.zone[host] else 0
                now = rank(there)[:levels]
                for name in self._fit(names, group, size=largest[group], arrived=arrived):
                    if name != there and (beyond or rank(name)[:levels] < now):
                        text = f"VM {vm} of group {group} moves to {there} and not to {name}"
                        yield "apart", f"{text}, which would keep it apart"
                        break

    def _rooms(self, shut: set[str]) -> dict[tuple[str, str], dict[int, list[str]]]:
        """Return the open hosts by zone and driver, then by fault domain, most room first."""
        closed = shut.union(*(arrivals | {host} for host, *_, arrivals in self.works))
        rooms: dict[tuple[str, str], dict[int, list[str]]] = {}
        for host in self.hosts.values():
            if host.capacity and not host.scheduled and host.name not in closed:
                zones = rooms.setdefault((host.zone, host.driver), {})
                zones.setdefault(self.zone[host.name], []).append(host.name)
        for zones in rooms.values():
            for names in zones.values():
                names.sort(key=self._room, reverse=True)
        return rooms

    def _room(self, name: str) -> int:
        return self.hosts[name].capacity - self.size[name]

    def _fit(
        self, names: list[str], group: str, *, size: int, arrived: Counter[tuple[str, str]]
    ) -> Iterator[str]:
        """Yield hosts of a fault domain that have room for a VM, within its group's limits."""
        counted = [(Scope.GROUP, group), (Scope.OWNER, self.owner[group])]
        limited = [key for key in counted if key in self.limits]
        if len(names) > _COMPARED_MAX:
            names = [] if limited else names[:1]
        for name in names:
            if self._room(name) < size:
                return
            use: dict[tuple[Scope, str], int] = {}
            if limited:
                new = Counter({of: count for (to, of), count in arrived.items() if to == name})
                use = self._taken([], self.on[name] + new)
            if all(use.get(key, 0) < self.limits[key] for key in limited):
                yield name

    def _nearness(
        self, vm: int, moves: dict[int, tuple[str, str]], arrived: Counter[tuple[str, str]]
    ) -> Callable[[str], tuple[int, int, int]]:
        """Return a function of a host: how near it is to the VM's group, less is better.

        The VMs that its labels would misplace, those in its fault domain, and those on it.
        """
        group, now = self.group[vm], moves[vm][1]
        counts: list[tuple[str, bool, Counter[str]]] = []
        if group in self.kept:
            at = {
                each: moves[each][1] if each in moves else self.at[each]
                for each in self.kept[group]
            }
            others = [_values(self.hosts[host]) for other, host in at.items() if other != vm]
            kept = self.keeps[group]
            counts = [
                (key, key in kept.keep_together, Counter(each.get(key, "") for each in others))
                for key in (*kept.keep_apart, *kept.keep_together)
            ]

        def rank(name: str) -> tuple[int, int, int]:
            wrong = 0
            for key, together, values in counts:
                same = values[_values(self.hosts[name]).get(key, "")]
                wrong += values.total() - same if together else same
            near = self.domains[group, self.zone[name]] - (self.zone[name] == self.zone[now])
            return wrong, near, self.on[name][group] + arrived[name, group] - (name == now)

        return rank


def _values(host: FleetHost) -> dict[str, str]:
    pairs = [label.split("=", 1) for label in host.labels]
    return {"zone": host.zone, "rack": host.rack, **dict(pairs)}


def _labels(host: FleetHost) -> set[str]:
    return {f"zone={host.zone}", f"rack={host.rack}", *host.labels}
