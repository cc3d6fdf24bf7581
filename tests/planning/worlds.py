"""Small fleets, policies and live states for the tests of the planner, drawn or written by hand."""

from dataclasses import replace

from hypothesis import strategies as st

from forewarn_core.planning.durations import DurationSample
from forewarn_core.planning.fleet import Fleet, FleetGroup, FleetHost
from forewarn_core.planning.plan import FleetState, HandBack, HostOrder, Live, PlanRequest
from forewarn_core.planning.policy import Budget, MaintenancePolicy, Scope
from forewarn_core.rules.local_time import Window

#: Wednesday 2026-07-01 00:00 UTC, in ms.
NOW_MS = 1_782_864_000_000
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

#: Labels by which groups are kept apart, and together.
KEPT: list[tuple[tuple[str, ...], tuple[str, ...]]] = [
    ((), ()),
    ((), ()),
    (("rack",), ()),
    ((), ("rack",)),
    (("k",), ("rack",)),
    (("rack", "k"), ()),
]

World = tuple[Fleet, FleetState, MaintenancePolicy, PlanRequest]


def fleet_of(*members: str, owners: dict[str, str] | None = None, capacity: int = 100) -> Fleet:
    """Return a fleet of hosts h0, h1, … each in a fault domain of its own.

    Args:
        members: for each host the groups of its VMs, as `a a b`.
        owners: group -> owner.
        capacity: of every host.
    """
    names = sorted({group for of_host in members for group in of_host.split()})
    hosts = [FleetHost(f"h{n}", fault_domain=n, capacity=capacity) for n in range(len(members))]
    vms = [(f"h{n}", group, 1) for n, of_host in enumerate(members) for group in of_host.split()]
    return Fleet.of(hosts, [FleetGroup(name, (owners or {}).get(name, "")) for name in names], vms)


def everyone(fleet: Fleet, **terms: object) -> PlanRequest:
    """Return a maintenance of all hosts, an hour each if nothing else is said."""
    return PlanRequest(tuple(h.name for h in fleet.hosts), **{"duration_s": 3600, **terms})  # type: ignore[arg-type]


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    """Draw a fleet of up to twelve hosts, in two zones, with up to thirty VMs."""
    count = draw(st.integers(1, 12))
    places = st.tuples(
        st.sampled_from(["z1", "z2"]),
        st.integers(0, 3),
        st.integers(3, 12),
        st.sampled_from(["", "", "", "libvirt", "nova"]),
    )
    hosts = [
        FleetHost(
            *(f"h{n}", zone, f"{zone}-r{n % 2}", domain),
            labels=(f"k={n % 3}",),
            capacity=capacity,
            driver=driver,
            scheduled=driver == "nova",
        )
        for n, (zone, domain, capacity, driver) in enumerate(
            draw(st.lists(places, min_size=count, max_size=count))
        )
    ]
    groups = [
        FleetGroup(f"g{n}", draw(st.sampled_from(["", "o1", "o2"])), *draw(st.sampled_from(KEPT)))
        for n in range(5)
    ]
    room = {host.name: host.capacity for host in hosts}
    vms = []
    for host, group, size in draw(
        st.lists(
            st.tuples(st.sampled_from(hosts), st.sampled_from(groups), st.integers(0, 3)),
            max_size=30,
        )
    ):
        if room[host.name] >= size:
            room[host.name] -= size
            vms.append((host.name, group.name, size))
    return Fleet.of(hosts, groups, vms)


budgets = st.builds(
    Budget,
    st.sampled_from([Scope.FLEET, Scope.ZONE, Scope.RACK, Scope.OWNER, Scope.GROUP]),
    st.integers(1, 4),
) | st.builds(
    Budget, st.sampled_from(Scope), st.integers(1, 100), st.just(value=True), st.just("k=1")
)
windows = st.builds(
    Window,
    st.sampled_from(["night", "day"]),
    st.sampled_from(["UTC", "Europe/Berlin", "Australia/Lord_Howe"]),
    st.sets(st.integers(0, 6), min_size=1).map(tuple),
    st.sampled_from([0, 90, 22 * 60]),
    st.sampled_from([60, 300, 24 * 60]),
    st.sampled_from([(), ("2026-07-02",)]),
    st.sampled_from([(), ("zone=z1",), ("k=2",)]),
    st.sampled_from([None, None, (), ("g0", "g1")]),
    st.sampled_from(["", "2026-07-02"]),
    st.sampled_from(["", "", "2026-07-02", "2026-07-02 01:30"]),
)
policies = st.builds(
    MaintenancePolicy,
    st.lists(budgets, max_size=3).map(tuple),
    st.lists(windows, max_size=2).map(tuple),
    st.sampled_from([(), ((NOW_MS + HOUR_MS, NOW_MS + 30 * HOUR_MS),)]),
    st.sampled_from([0, 600, 7200]),
    st.sampled_from([0, 0, 86_400]),
    st.integers(0, 2),
    st.sampled_from([0, 900]),
)
samples = st.builds(
    DurationSample,
    st.just(1),
    st.tuples(
        st.sampled_from(["zone=z1", "zone=z2"]),
        st.sampled_from(["k=0", "k=1", "k=2", "rack=z1-r0"]),
    ),
    st.sampled_from([1, 900, 3600, 20_000]),
)


def hand_backs(host: str) -> st.SearchStrategy[HandBack]:
    """Draw a deadline of declared work on a host, or a start that was chosen before it."""
    after_ms = [MINUTE_MS, 20 * MINUTE_MS, 3 * HOUR_MS, DAY_MS]
    times_ms = st.sampled_from([NOW_MS + each for each in after_ms])
    deadlines = st.builds(HandBack, st.just(host), times_ms, st.just("a deadline"))
    pairs = st.tuples(times_ms, times_ms).filter(lambda drawn: drawn[0] <= drawn[1])
    return deadlines | pairs.map(lambda drawn: HandBack(host, drawn[0], "a choice", drawn[1]))


def orders(names: list[str]) -> st.SearchStrategy[tuple[HostOrder, ...]]:
    """Draw an order of at most four hosts: those of a test group come first."""
    hosts = st.lists(st.sampled_from(names), max_size=4, unique=True)
    observed_s, ends_ms = st.sampled_from([60, 7200]), st.sampled_from([0, NOW_MS + HOUR_MS])
    return st.builds(
        lambda drawn, observation_s, ended_ms: tuple(
            HostOrder((first,), tuple(drawn[1:]), observation_s, ended_ms) for first in drawn[:1]
        ),
        hosts,
        observed_s,
        ends_ms,
    )


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Draw everything a plan is made of."""
    fleet = draw(fleets())
    names = [host.name for host in fleet.hosts]
    some = st.lists(st.sampled_from(names), max_size=2, unique=True).map(tuple)
    lives = st.builds(
        Live,
        st.sampled_from(["op-1", "op-2"]),
        st.sampled_from(names),
        st.none(),
        st.sampled_from([0, NOW_MS + HOUR_MS, NOW_MS + DAY_MS]),
        some,
    )
    if fleet.vm_hosts:
        vms = st.integers(0, len(fleet.vm_hosts) - 1)
        on_vm = st.tuples(lives, vms, st.booleans())
        lives |= on_vm.map(
            lambda drawn: replace(
                drawn[0],
                vm=drawn[1],
                host=names[fleet.vm_hosts[drawn[1]]],
                disturbs_groups=drawn[2],
            )
        )
    state = FleetState(tuple(draw(st.lists(lives, max_size=2))), draw(some))
    asked = draw(st.lists(st.sampled_from([*names, "h99"]), min_size=1, unique=True))
    request = PlanRequest(
        tuple(asked),
        draw(st.sampled_from([600, 3600])),
        draw(st.sampled_from([0, 1200])),
        draw(st.sampled_from([0, 0, 1500])),
        earliest_ms=draw(st.sampled_from([0, NOW_MS + 3 * HOUR_MS])),
        deadline_ms=draw(st.sampled_from([0, 0, NOW_MS + 5 * DAY_MS])),
        postponed=tuple((name, NOW_MS + DAY_MS, "o1") for name in draw(some)),
        seed=draw(st.integers(0, 3)),
        steps=draw(st.sampled_from([0, 500])),
        failure_domain=draw(st.sampled_from(["", "", "", "rack", "k"])),
        hand_backs=tuple(draw(hand_backs(name)) for name in draw(some)),
        orders=draw(orders(asked)),
    )
    return fleet, state, draw(policies), request


@st.composite
def learning_worlds(draw: st.DrawFn) -> World:
    """Draw a world whose policy learns durations from drawn samples."""
    fleet, state, policy, request = draw(worlds())
    learning = replace(
        policy,
        duration_percentile=draw(st.sampled_from([1, 50, 90, 100])),
        duration_label=draw(st.sampled_from(["", "k", "zone", "rack"])),
        duration_samples=draw(st.integers(0, 3)),
    )
    drawn = tuple(draw(st.lists(samples, max_size=12)))
    return fleet, replace(state, samples=drawn), learning, request
