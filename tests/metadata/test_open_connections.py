"""Which connections may stay, make way, or are closed: by whose they are and what they do. E-8."""

from dataclasses import dataclass, field

import pytest

from forewarn_base.settings import MetadataSettings
from forewarn_metadata.endpoint.http.open_connections import ConnectedClient, OpenConnections
from forewarn_metadata.endpoint.identity import Callers, Peer
from forewarn_metadata.replication.messages import Caller, DocumentChange
from tests.metadata.live import serving, with_settings

VM = "10.0.0.1"
OTHER_VM = "10.0.0.2"
STRANGER, OTHER_STRANGER, PROXY = "10.9.0.1", "10.9.0.2", "10.8.0.1"
CALLERS = (
    Caller("vm-a", "g", "g", (VM, "10.0.0.11")),
    Caller("vm-b", "g", "g", (OTHER_VM,)),
)


@dataclass(eq=False)
class Line:
    """A connection as it is looked at here, and what became of it."""

    peer: Peer
    client: ConnectedClient
    stamp: int = 0
    since: int = 0
    over: bool = False
    stalled: bool = False
    idle: bool = True
    unfinished: bool = False
    stays: bool = False
    became: list[str] = field(default_factory=list)
    connections: OpenConnections | None = None

    @property
    def ready(self) -> dict[bytes, object]:
        """What it answers from memory: something, unless anything is under way."""
        is_free = self.idle and not (self.over or self.stalled or self.unfinished)
        return {b"GET": None} if is_free else {}

    def make_way(self) -> bool:
        """Go, unless an approval is under way."""
        if self.stays:
            return False
        self.became.append("made way")
        assert self.connections is not None
        self.connections.remove(self)
        return True

    def stop(self) -> None:
        """Note it."""
        self.became.append("stopped")

    def slow(self) -> None:
        """Note it."""
        self.became.append("refused")

    def abandon(self) -> None:
        """Note it."""
        self.became.append("cut")

    def identity_moved(self) -> bool:
        """Nothing is held."""
        return False

    def answer_again(self) -> None:
        """Nothing is held."""


def connections_of(**settings: object) -> OpenConnections:
    """The connections of a service with two VMs and a proxy."""
    chosen: MetadataSettings = with_settings(proxy_addresses=(PROXY,), **settings)
    callers = Callers(chosen)
    callers.apply(DocumentChange(1, callers=CALLERS))
    return OpenConnections(chosen, callers, fds_max=0)


def opened(connections: OpenConnections, address: str, **facts: object) -> Line | None:
    """Open a connection; None where it may not be."""
    client = connections.admit(Peer(address))
    if client is None:
        return None
    line = Line(Peer(address), client, connections=connections, **facts)  # type: ignore[arg-type]
    connections.add(line)
    return line


@pytest.mark.parametrize(
    ("fds", "limit"), [(0, 1000), (4, 3), (1, 1), (400, 300), (4096, 1000), (1332, 999)]
)
def test_descriptors_are_left_for_others(fds: int, limit: int) -> None:
    """One in four, at most 1024; the setting is never exceeded, and one may always ask. E-8."""
    settings = with_settings(max_connections=1000)
    assert OpenConnections(settings, Callers(settings), fds_max=fds).limit == limit


def test_large_reserve_has_its_limit() -> None:
    """Who has very many descriptors keeps 1024 of them for the rest. Source: E-8."""
    settings = with_settings(max_connections=100_000)
    assert OpenConnections(settings, Callers(settings), fds_max=10_000).limit == 10_000 - 1024


def test_descriptors_that_the_process_may_have_now_count() -> None:
    """Not those that it could ask for. Source: E-8."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (4000, before[1]))
    try:
        with serving(with_settings(max_connections=100_000), portable=True) as live:
            assert live.server.service.connections.limit == 3000
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_unknown_callers_have_their_share() -> None:
    """A quarter of all together, each no more than its own limit; refused, not exchanged. E-8."""
    connections = connections_of(max_connections=12, max_connections_per_client=2)
    strangers = [opened(connections, STRANGER) for _ in range(3)]
    assert [each is not None for each in strangers] == [True, True, False]
    assert opened(connections, OTHER_STRANGER) is not None
    assert opened(connections, "10.9.0.3") is None
    assert len(connections) == 3
    first = strangers[0]
    assert first is not None
    connections.remove(first)
    assert opened(connections, "10.9.0.3") is not None


def test_setting_bounds_unknown_callers_below_their_share() -> None:
    """The smaller of both counts. Source: E-8."""
    connections = connections_of(max_connections=100, max_unknown_connections=2)
    found = [opened(connections, f"10.9.0.{n}") for n in range(3)]
    assert [each is not None for each in found] == [True, True, False]


def test_vm_loses_its_oldest_idle_connection_to_its_newest() -> None:
    """All its addresses count together; no other VM's is touched. Source: E-8."""
    connections = connections_of(max_connections_per_client=2)
    other = opened(connections, OTHER_VM)
    lines = [opened(connections, each, stamp=n) for n, each in enumerate((VM, "10.0.0.11", VM))]
    assert [each and each.became for each in (*lines, other)] == [["made way"], [], [], []]
    assert len(connections) == 3


def test_vm_whose_connections_all_wait_gets_no_further_one() -> None:
    """A held answer, and a request on its way, make way for nothing of the same VM. E-8."""
    connections = connections_of(max_connections_per_client=2)
    assert opened(connections, VM, idle=False) is not None
    fresh = opened(connections, VM, idle=False, unfinished=True)
    assert fresh is not None
    assert opened(connections, VM) is None
    connections.sweep(1)  # since when that request is late
    assert opened(connections, VM) is not None
    assert fresh.became == ["made way"]


def test_connections_behind_a_proxy_have_no_limit_of_their_own() -> None:
    """Its address is that of many VMs. Source: S-6, E-8."""
    connections = connections_of(max_connections_per_client=1, max_connections=5)
    lines = [opened(connections, PROXY) for _ in range(5)]
    assert None not in lines
    assert opened(connections, PROXY) is not None  # the oldest made way
    assert len(connections) == 5


@pytest.mark.parametrize(
    ("facts", "first"),
    [
        ([{"over": True, "stamp": 9}, {"stamp": 1}], 0),
        ([{"stamp": 1}, {"idle": False, "unfinished": True, "since": 4, "stamp": 9}], 1),
        ([{"idle": False, "unfinished": True, "since": 5}, {"stamp": 5}], 1),
        ([{"idle": False}, {"idle": False, "unfinished": True, "since": 5, "stamp": 9}], 1),
        ([{"stamp": 3}, {"stamp": 2}], 1),
        ([{"stamp": 2}, {"stamp": 2}], 0),
        ([{"over": True, "stays": True}, {"idle": False}], 1),
    ],
    ids=["over", "late", "idle", "begun", "older", "equal", "approval"],
)
def test_least_is_lost_where_one_makes_way(facts: list[dict[str, object]], first: int) -> None:
    """What ends anyway, is late, idle, has begun, waits: in this order, the oldest first. E-8."""
    connections = connections_of(max_connections=2)
    connections.sweep(5)
    lines = [
        opened(connections, each, **more) for each, more in zip((VM, OTHER_VM), facts, strict=True)
    ]
    for line in lines:
        assert line is not None
        line.became.clear()
    assert opened(connections, PROXY) is not None
    assert [each and each.became for each in lines] == [
        ["made way"] if n == first else [] for n in range(2)
    ]


def test_strangers_make_way_before_vms() -> None:
    """Whatever they do. Source: E-8, S-6."""
    connections = connections_of(max_connections=4)
    stranger = opened(connections, STRANGER, idle=False, stamp=99)
    vms = [opened(connections, VM, over=True) for _ in range(3)]
    assert opened(connections, OTHER_VM) is not None
    assert stranger is not None
    assert stranger.became == ["made way"]
    assert [each and each.became for each in vms] == [[], [], []]


def test_nobody_is_admitted_where_nobody_makes_way() -> None:
    """Approvals under way are not cut off for a newcomer. Source: E-8, A-6."""
    connections = connections_of(max_connections=2)
    for address in (VM, OTHER_VM):
        assert opened(connections, address, idle=False, stays=True) is not None
    assert opened(connections, PROXY) is None
    assert not connections.make_room()


IDLE_S, REQUEST_S, STALL_S = 100, 10, 30


@pytest.mark.parametrize(
    ("facts", "closes_at", "became"),
    [
        ({"stamp": 5}, 5 + IDLE_S, "stopped"),
        ({"idle": False, "stamp": 5}, None, ""),
        ({"idle": False, "unfinished": True, "since": 5, "stamp": 9}, 5 + REQUEST_S, "refused"),
        ({"idle": False, "stalled": True, "stamp": 5, "since": 0}, 5 + STALL_S, "cut"),
        ({"over": True, "stamp": 5}, 5 + STALL_S, "cut"),
        ({"over": True, "idle": False, "unfinished": True, "stamp": 5}, 5 + STALL_S, "cut"),
    ],
    ids=["idle", "waiting", "slow", "stalled", "over", "over-slow"],
)
def test_silent_slow_and_unread_connections_are_closed(
    facts: dict[str, object], closes_at: int | None, became: str
) -> None:
    """Each after its own time, to the second; a held answer never. Source: E-8."""
    connections = connections_of(
        idle_timeout_s=IDLE_S, request_timeout_s=REQUEST_S, stall_timeout_s=STALL_S
    )
    line = opened(connections, VM, **facts)
    assert line is not None
    for tick in range(5, closes_at or 1000):
        connections.sweep(tick)
        assert line.became == []
    if closes_at:
        connections.sweep(closes_at)
        assert line.became == [became]


@pytest.mark.parametrize(
    ("request_timeout_s", "facts", "cut_at"),
    [
        (10, {"since": 5, "stamp": 5}, 7),
        (1, {"since": 5, "stamp": 5}, 6),
        (10, {"since": 5, "stamp": 99}, 7),
        (10, {"since": 99, "stamp": 5}, 7),
        (10, {"since": 5, "stamp": 5, "idle": False, "unfinished": True}, 7),
    ],
)
def test_unknown_caller_has_two_seconds(
    request_timeout_s: int, facts: dict[str, object], cut_at: int
) -> None:
    """For its one request, or less where nobody has more; nothing starts them again. S-6."""
    connections = connections_of(request_timeout_s=request_timeout_s)
    line = opened(connections, STRANGER, **facts)
    assert line is not None
    connections.sweep(cut_at - 1)
    assert line.became == []
    connections.sweep(cut_at)
    assert line.became == ["cut"]


def test_connection_counts_as_its_address_owner_does() -> None:
    """A VM that came to an unknown address has that connection from then on. Source: S-6."""
    settings = with_settings(max_connections_per_client=1, max_connections=100)
    callers = Callers(settings)
    connections = OpenConnections(settings, callers, fds_max=0)
    line = opened(connections, VM)
    assert line is not None
    assert not line.client.is_known
    callers.apply(DocumentChange(1, callers=CALLERS))
    connections.move(line)
    assert (line.client.name, line.client.is_known, line.client.is_shared) == (
        "vm-a",
        True,
        False,
    )
    assert opened(connections, "10.0.0.11") is not None
    assert line.became == ["made way"]
    callers.apply(DocumentChange(2, whole=True))
    for each in connections:
        connections.move(each)
        assert (each.client.name, each.client.is_known) == ("10.0.0.11", False)
    assert (len(connections), [*connections] == [line]) == (1, False)


def test_nothing_is_kept_of_connections_that_are_gone() -> None:
    """Whoever they were, and however often one is struck off. Source: E-8."""
    connections = connections_of(max_connections=100)
    lines = [opened(connections, each) for each in (VM, VM, STRANGER, PROXY)]
    for line in lines:
        assert line is not None
        connections.remove(line)
        connections.remove(line)
    assert len(connections) == 0
    assert [*connections] == []
    tables = [each for each in vars(connections).values() if isinstance(each, dict)]
    assert [each for each in tables if each] == []
