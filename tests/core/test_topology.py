"""How a fleet may be laid out: what is refused, who shares a document, who is told."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn_base.names import TEXT_LENGTH_MAX
from forewarn_base.values import replace
from forewarn_core.fleet.impact import Impact
from forewarn_core.fleet.naming import (
    DOMAIN_MAX,
    INSTANCE_LENGTH_MAX,
    INSTANCE_MAX,
    KEY_PATTERN,
    LABELS_MAX,
    TAGS_MAX,
    VALUE_PATTERN,
    NothingSelected,
    SelectorInvalid,
    check_text,
    read_selector,
)
from forewarn_core.fleet.refusals import FleetContradiction
from forewarn_core.fleet.topology import (
    FleetChange,
    Group,
    GroupKind,
    Health,
    Host,
    Topology,
    Vm,
    select,
    words_of,
)

GPU_GROUP = Group("gpu", GroupKind.SCALE_SET, fault_domain_count=1)


@pytest.mark.parametrize("name", ["", "-a", "a b", "a/b", "ä", "a" * 129, "a\n"])
def test_name_is_plain(name: str) -> None:
    """A name stands in URLs and documents, so it is plain."""
    with pytest.raises(FleetContradiction, match="a name is"):
        Host(name)
    with pytest.raises(FleetContradiction, match="a name is"):
        Group(name)
    with pytest.raises(FleetContradiction, match="a name is"):
        Vm(name, "h", "g")


@pytest.mark.parametrize("domain", [-1, DOMAIN_MAX + 1])
def test_domain_is_a_small_number(domain: int) -> None:
    """Fault and update domains are small numbers. Source: G-2."""
    with pytest.raises(FleetContradiction, match="domain"):
        Host("h", fault_domain=domain)
    with pytest.raises(FleetContradiction, match="domain"):
        Host("h", update_domain=domain)
    with pytest.raises(FleetContradiction, match="fault_domain_count"):
        Group("g", fault_domain_count=domain if domain < 0 else DOMAIN_MAX + 2)


@pytest.mark.parametrize(
    ("apart", "together"),
    [(("a b",), ()), (("rack", "rack"), ()), (("rack",), ("rack",)), (("r" * 64,), ())],
)
def test_group_names_labels_once(apart: tuple[str, ...], together: tuple[str, ...]) -> None:
    """A group is kept apart or together by a label that hosts can have, never both. F-3."""
    with pytest.raises(FleetContradiction, match="label"):
        Group("g", keep_apart=apart, keep_together=together)


@pytest.mark.parametrize("notice_s", [1, 299, 901])
def test_terminate_notice_is_five_to_fifteen_minutes(notice_s: int) -> None:
    """A terminate notice is five to fifteen minutes, or none. Source: N-1."""
    with pytest.raises(FleetContradiction, match="give 5 min to 15 min"):
        Group("g", terminate_notice_s=notice_s)
    assert Group("g", terminate_notice_s=300).terminate_notice_s == 300


def test_only_reboot_and_redeploy_can_be_automatic() -> None:
    """Automatic approval is for user-initiated Reboot and Redeploy. Source: A-10."""
    with pytest.raises(FleetContradiction, match="automatically"):
        Group("g", automatic_approval=frozenset({Impact.FREEZE}))


def test_text_is_printable_and_bounded() -> None:
    """What people write is printable and of bounded length."""
    with pytest.raises(FleetContradiction, match="not printable"):
        Host("h", zone="\x00")
    with pytest.raises(FleetContradiction, match="longer"):
        Group("g", owner="x" * 257)
    with pytest.raises(FleetContradiction, match="more than"):
        Vm("v", "h", "g", tags=(("a", "b"),) * (TAGS_MAX + 1))
    with pytest.raises(FleetContradiction, match=r"VM v: .*not printable"):
        Vm("v", "h", "g", tags=(("a", "\n"),))
    assert len(Vm("v", "h", "g", addresses=tuple(f"10.0.0.{n}" for n in range(64))).addresses) == 64
    with pytest.raises(FleetContradiction, match="more than 64"):
        Vm("v", "h", "g", addresses=tuple(f"10.0.0.{n}" for n in range(65)))


def test_instance_metadata_is_bounded() -> None:
    """Further instance metadata is bounded as a whole; only line breaks need not be printable."""
    Vm("v", "h", "g", instance=(("publicKeys", "a\nb"),))
    with pytest.raises(FleetContradiction, match="65 members"):
        Vm("v", "h", "g", instance=tuple((f"n{n}", "") for n in range(INSTANCE_MAX + 1)))
    with pytest.raises(FleetContradiction, match="16385 characters"):
        Vm("v", "h", "g", instance=(("a", "x" * INSTANCE_LENGTH_MAX),))
    with pytest.raises(FleetContradiction, match="printable"):
        Vm("v", "h", "g", instance=(("a", "\x00"),))


def fleet(*vms: Vm, group: Group | None = None) -> Topology:
    """A fleet of one host and one group."""
    found = group or Group("g")
    return Topology(
        hosts={"h": Host("h"), "i": Host("i", fault_domain=1, zone="2")},
        groups={found.name: found},
        vms={vm.name: vm for vm in vms},
    )


def test_vm_stands_on_a_host_and_in_a_group() -> None:
    """A VM names a host and a group that are there."""
    with pytest.raises(FleetContradiction, match="no host j"):
        fleet(Vm("v", "j", "g"))
    with pytest.raises(FleetContradiction, match="no group k"):
        fleet(Vm("v", "h", "k"))


def test_lone_group_holds_one_vm() -> None:
    """A lone VM sees only its own events, so nobody else is in its group. Source: S-2."""
    lone = Group("g", GroupKind.LONE)
    assert fleet(Vm("v", "h", "g"), group=lone).vms_in("g") == ("v",)
    with pytest.raises(FleetContradiction, match="lone"):
        fleet(Vm("v", "h", "g"), Vm("w", "h", "g"), group=lone)


NAMES = st.sampled_from(["a", "b", "c", "d"])
SOME_VM = st.builds(
    lambda host, group, address: (host, group, address),
    st.sampled_from("hi"),
    st.sampled_from("gk"),
    st.sampled_from(["", "10.0.0.4", "10.0.0.5"]),
)


@given(
    st.lists(
        st.tuples(
            st.dictionaries(NAMES, st.none() | SOME_VM, max_size=4),
            st.dictionaries(st.sampled_from("hi"), st.sampled_from(Health), max_size=1),
            st.booleans(),
        ),
        max_size=6,
    )
)
def test_layout_changed_by_key_is_the_whole(
    steps: list[tuple[dict[str, tuple[str, str, str] | None], dict[str, Health], bool]],
) -> None:
    """What is changed key by key is what would be laid out whole, and can be undone."""
    hosts = {"h": Host("h"), "i": Host("i", fault_domain=1)}
    now = Topology(dict(hosts), {"g": Group("g"), "k": Group("k", GroupKind.LONE)}, {})
    for vms, health, kept in steps:
        changed: dict[str, Vm | None] = {
            name: Vm(name, made[0], made[1], addresses=tuple(filter(None, made[2:])))
            if made
            else None
            for name, made in vms.items()
            if made or name in now.vms
        }
        change = FleetChange(
            {name: replace(now.hosts[name], health=each) for name, each in health.items()},
            {},
            changed,
        )
        left = {name: vm for name, vm in now.vms.items() if name not in changed}
        left |= {name: vm for name, vm in changed.items() if vm is not None}
        before, undo = copy.deepcopy(now), now.before(change)
        try:
            whole = Topology({**now.hosts, **change.hosts}, now.groups, left)  # type: ignore[dict-item]
        except FleetContradiction:
            with pytest.raises(FleetContradiction):
                now.apply(change)
            now.apply(undo)
            assert_same(now, before)
            continue
        shared = now.shared()
        now.apply(change)
        assert_same(now, whole)
        assert_same(shared, before)
        if not kept:
            now.apply(undo)
            assert_same(now, before)


def assert_same(one: Topology, other: Topology) -> None:
    """Assert that two layouts say the same, whatever their tables are."""
    for table in ("hosts", "groups", "vms", "_on_host", "_in_group", "_known_by"):
        mine, theirs = getattr(one, table), getattr(other, table)
        assert dict(mine) == dict(theirs)
        assert len(mine) == len(theirs)


def test_removed_host_and_group_are_gone() -> None:
    """Hosts and groups that nobody stands on are taken out with the VMs that did."""
    now = fleet(Vm("v", "h", "g"))
    now.apply(FleetChange({"h": None}, {"g": None}, {"v": None}))
    assert (list(now.hosts), list(now.groups), list(now.vms)) == (["i"], [], [])
    assert now.vms_on("h") == now.vms_in("g") == ()


def test_addresses_may_change_hands() -> None:
    """Two VMs may swap what they are recognised by in one change. Source: S-6."""
    now = fleet(Vm("v", "h", "g", addresses=("a",)), Vm("w", "h", "g", addresses=("b",)))
    swapped = {name: replace(now.vms[name], addresses=(a,)) for name, a in (("v", "b"), ("w", "a"))}
    now.apply(FleetChange(vms={**swapped}))
    with pytest.raises(FleetContradiction, match="VM x: a already belongs to VM w"):
        now.apply(FleetChange(vms={"x": Vm("x", "h", "g", addresses=("a",))}))


def test_two_vms_are_never_recognised_alike() -> None:
    """An address on an interface, and an instance id, belong to one VM. Source: S-6."""
    with pytest.raises(FleetContradiction, match=r"10\.0\.0\.4 already belongs to VM v"):
        fleet(
            Vm("v", "h", "g", addresses=("10.0.0.4",)), Vm("w", "h", "g", addresses=("10.0.0.4",))
        )
    with pytest.raises(FleetContradiction, match="i-1 already belongs to VM v"):
        fleet(Vm("v", "h", "g", instance_id="i-1"), Vm("w", "h", "g", instance_id="i-1"))
    apart = fleet(
        Vm("v", "h", "g", addresses=("10.0.0.4",), interface="tap0"),
        Vm("w", "h", "g", addresses=("10.0.0.4",), interface="tap1"),
    )
    assert apart.vms_on("h") == ("v", "w")


@pytest.mark.parametrize(
    ("vm", "view"),
    [
        (Vm("v", "h", "gpu", gpu=True), "gpu/v"),
        (Vm("v", "h", "gpu", size="Standard_NC6"), "gpu/v"),
        (Vm("v", "h", "gpu", size="Standard_D4s_v5"), "gpu"),
        (Vm("v", "h", "gpu"), "gpu"),
    ],
    ids=["said", "size", "other-size", "plain"],
)
def test_gpu_vm_of_one_fault_domain_reads_its_own_document(vm: Vm, view: str) -> None:
    """A GPU VM of a scale set with one fault domain has a document of its own. Source: S-3."""
    topology = fleet(vm, group=GPU_GROUP)
    assert topology.view_of("v") == view
    assert topology.views_of("gpu") == tuple(dict.fromkeys(("gpu", view)))


@pytest.mark.parametrize(
    "group",
    [Group("gpu", fault_domain_count=1), Group("gpu", GroupKind.SCALE_SET, fault_domain_count=2)],
    ids=["availability-set", "two-domains"],
)
def test_other_gpu_vms_share_their_groups_document(group: Group) -> None:
    """Everybody else reads the group's document. Source: S-1."""
    assert fleet(Vm("v", "h", "gpu", gpu=True), group=group).view_of("v") == "gpu"


@pytest.mark.parametrize(("size", "announced"), [("Standard_D2", True), ("G5", False), ("", True)])
def test_reimage_is_announced_for_general_sizes(size: str, *, announced: bool) -> None:
    """Sizes of the families G, M, N and H get no notice of an image upgrade. Source: D-4."""
    assert Vm("v", "h", "g", size=size).reimage_announceable is announced


def test_fault_zones_tell_zones_apart() -> None:
    """Fault domain 1 of one zone is not fault domain 1 of another. Source: G-1."""
    topology = fleet(Vm("v", "h", "g"), Vm("w", "i", "g"))
    assert [host.fault_zone for host in topology.hosts.values()] == [("", 0), ("2", 1)]
    assert topology.grouped(("w", "v")) == {"g": ("v", "w")}
    assert topology.vms_on("nowhere") == topology.vms_in("nobody") == ()


def test_texts_that_are_long_together_are_not_too_long() -> None:
    """The limit is that of one text, however many a record has."""
    longest = "x" * TEXT_LENGTH_MAX
    check_text("vm", "v", (longest, longest))
    with pytest.raises(FleetContradiction, match="longer than"):
        check_text("vm", "v", (longest, longest + "x"))
    with pytest.raises(FleetContradiction, match="not printable"):
        check_text("vm", "v", (longest, "a", "\n"))


# -- labels of hosts, and the selectors that name hosts by them. Source: F-1 ---------------------


HOSTS = (
    Host("h1", zone="1", labels=(("rack", "r1"), ("tier", "gold"))),
    Host("h2", zone="2", labels=(("rack", "r1"),)),
    Host("h3", zone="2", labels=(("rack", "r7"),)),
    Host("h4"),
)


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("zone=2", ("h2", "h3")),
        ("rack=r1", ("h1", "h2")),
        (" zone=2 , rack=r1 ", ("h2",)),
        ("tier=gold,zone=1,rack=r1", ("h1",)),
    ],
)
def test_host_is_selected_by_all_it_has(selector: str, names: tuple[str, ...]) -> None:
    """A selector names the hosts that have every pair of it."""
    assert select(HOSTS, selector) == names


@pytest.mark.parametrize("selector", ["", "zone", "zone=", "=2", "zone=1,", "a=b=c", "a=1,a=1"])
def test_what_is_no_selector_is_refused(selector: str) -> None:
    """What cannot be read names nobody, least of all everybody."""
    with pytest.raises(SelectorInvalid):
        select(HOSTS, selector)


def test_nothing_selected_is_an_error() -> None:
    """A slip of the pen is not a maintenance of no hosts."""
    with pytest.raises(NothingSelected):
        select(HOSTS, "zone=2,tier=gold")


@pytest.mark.parametrize(
    "labels",
    [
        (("zone", "3"),),
        (("a b", "c"),),
        (("a", "b,c"),),
        (("a", ""),),
        tuple((f"k{n}", "v") for n in range(LABELS_MAX + 1)),
    ],
)
def test_label_that_no_selector_could_name_is_refused(labels: tuple[tuple[str, str], ...]) -> None:
    """A host's labels can all be written in a selector."""
    with pytest.raises(FleetContradiction):
        Host("h1", labels=labels)


@given(st.from_regex(KEY_PATTERN, fullmatch=True), st.from_regex(VALUE_PATTERN, fullmatch=True))
def test_every_label_can_be_selected(key: str, text: str) -> None:
    """Whatever may be a label is found by the selector that has it."""
    if key == "zone" or not text.isprintable():
        return
    host = Host("h1", labels=((key, text),))
    assert read_selector(f"{key}={text}") == ((key, text.strip()),)
    assert select([host, Host("h2")], f"{key}={text}") == ("h1",)
    assert f"{key}={text}" in words_of(host)
