"""Rules and names: what an event is met with, and which name is this VM."""

import pytest

from forewarn.agent.core.identity import Identity, resource_name
from forewarn.agent.core.rules import (
    IGNORE_OTHERS,
    Match,
    Rule,
    default_rules,
    matching_rule,
)
from forewarn.agent.core.values import HookEnded, PrepareIntent, Resumed, StopIntent, TimePassed
from tests.agent.making import DRAIN, ME, NOTICE_MS, NOW, event


@pytest.mark.parametrize(
    ("fields", "action", "name"),
    [
        pytest.param({"source": "User"}, "prepare", None, id="user"),
        pytest.param(
            {"source": "User", "event_type": "Terminate"}, "prepare", None, id="user's deletion"
        ),
        pytest.param(
            {"event_type": "Freeze", "duration_s": 8}, "approve", "short freezes", id="freeze 8 s"
        ),
        pytest.param({"event_type": "Freeze", "duration_s": 9}, "prepare", None, id="freeze 9 s"),
        pytest.param({"event_type": "Freeze"}, "prepare", None, id="freeze of unknown length"),
        pytest.param({}, "prepare", None, id="reboot"),
        pytest.param({"event_type": "Terminate"}, "prepare", None, id="terminate"),
        pytest.param({"event_type": "SpotRebalanceRecommendation"}, "notify", None, id="unknown"),
        pytest.param({"resources": ("vm_1",)}, "ignore", IGNORE_OTHERS.name, id="another VM's"),
        pytest.param({"resources": ("vm_1",), "source": "User"}, "ignore", None, id="user's other"),
    ],
)
def test_default_rules(fields: dict[str, object], action: str, name: str | None) -> None:
    """An agent without rules does what the clients' duties say. Source: C-3, C-4."""
    rule = matching_rule(default_rules(((DRAIN,),)), event(**fields), ME, now_ms=NOW)  # type: ignore[arg-type]
    assert rule.action == action
    assert name is None or rule.name == name
    assert rule.steps == (((DRAIN,),) if action == "prepare" else ())


def test_users_wait_for_nothing_that_need_not_be_done() -> None:
    """Without a step there is nothing to prepare, and nobody to wait for. Source: C-4."""
    rule = matching_rule(default_rules(), event(source="User"), ME, now_ms=NOW)
    assert (rule.action, rule.coordination) == ("approve", "self")


def test_freeze_need_not_be_tolerated() -> None:
    """A workload that tolerates no freeze is prepared for each. Source: C-4."""
    rules = default_rules(freeze_tolerated_s=0)
    frozen = event(event_type="Freeze", duration_s=0)
    assert matching_rule(rules, frozen, ME, now_ms=NOW).action == "prepare"


@pytest.mark.parametrize(
    ("match", "word"),
    [
        (Match(types=("reboot", "Freeze")), ""),
        (Match(types=("Freeze",)), "type"),
        (Match(sources=("PLATFORM",)), ""),
        (Match(sources=("User",)), "source"),
        (Match(duration_s=(0, 10)), "duration"),
        (Match(notice_s=(900, 900)), ""),
        (Match(notice_s=(901, 9999)), "notice"),
        (Match(description="LIVE migration"), ""),
        (Match(description="failure"), "description"),
        (Match(about="others"), "resources"),
        (Match(about="any"), ""),
    ],
)
def test_match_says_what_does_not_fit(match: Match, word: str) -> None:
    """`forewarn agent check` explains with the same words that decide."""
    one = event(description="a Live Migration", not_before_ms=NOW + NOTICE_MS)
    assert match.misses(one, ME, NOW) == word
    assert match.matches(one, ME, NOW) is not bool(word)


@pytest.mark.parametrize(
    ("duration_s", "word"), [(0, ""), (10, ""), (11, "duration"), (-1, "duration")]
)
def test_duration_that_is_unknown_fits_no_range(duration_s: int, word: str) -> None:
    """A Freeze of no length is known; -1 says that nobody knows. Source: D-7."""
    assert Match(duration_s=(0, 10)).misses(event(duration_s=duration_s), ME, NOW) == word


def test_event_without_not_before_has_no_notice_left() -> None:
    """A range of notice never matches what has none. Source: D-7."""
    one = event(not_before_ms=None)
    assert Match(notice_s=(0, 1e9)).misses(one, ME, NOW) == "notice"


def test_first_rule_that_matches_decides() -> None:
    """The order of the rules is their meaning."""
    first, second = (Rule(name, Match(), action="notify") for name in "ab")
    assert matching_rule((first, second), event(), ME, now_ms=NOW) is first


@pytest.mark.parametrize(
    ("resource", "mine"),
    [
        ("vmss_3", True),
        ("VMSS_3", True),
        ("_vmss_3", True),
        ("vmss000003", True),
        ("vmss_30", False),
        ("vmss_", False),
        ("xvmss_3", False),
        ("__vmss_3", False),
        ("", False),
    ],
)
def test_names_are_compared_exactly(resource: str, mine: bool) -> None:
    """`vmss_3` is not `vmss_30`: a part of a name is never enough. Source: V-1, C-3."""
    assert Identity("vmss_3", ("vmss000003",)).is_me(resource) is mine


@pytest.mark.parametrize(
    ("computer", "scale_set", "name"),
    [
        ("vmss000003", "vmss", "vmss_3"),
        ("web00000A", "vmss", "vmss_10"),
        ("prefix0000zz.example.net", "aks-pool-1-vmss", "aks-pool-1-vmss_1295"),
    ],
)
def test_computer_name_gives_the_resource_name(computer: str, scale_set: str, name: str) -> None:
    """A computer of a scale set is numbered in base 36."""
    assert resource_name(computer, scale_set) == name


@pytest.mark.parametrize("computer", ["", "000003", "web-1", "web00000é"])
def test_computer_name_without_a_number_is_refused(computer: str) -> None:
    """A guess would be worse than an error."""
    with pytest.raises(ValueError, match="base-36"):
        resource_name(computer, "vmss")


def test_values_compare_by_field() -> None:
    """Two values of equal fields are one value, of whatever depth of class."""
    end = HookEnded("a", 0)
    assert end == HookEnded("a", 0) != HookEnded("a", 1)
    assert len({end, HookEnded("a", 0), TimePassed(), TimePassed(), StopIntent("a", "")}) == 3
    assert end != TimePassed()
    assert repr(end) == "HookEnded(key='a', exit_status=0, reason='')"
    known = {"event": event(), "deadline_ms": 1, "attempt": 1}
    assert PrepareIntent("a", DRAIN, run=1, **known) != PrepareIntent("a", DRAIN, run=2, **known)  # type: ignore[arg-type]
    assert len({Resumed({"a": "0"}), Resumed({"a": "0"}), Resumed({}, rebooted=True)}) == 2
