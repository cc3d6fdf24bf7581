"""Settings for old and odd clients, and those that switch what old clients need off. E-2 to E-4."""

import pytest

from tests.metadata.live import EVENTS, approval, serving, with_settings

PATH = "/metadata/scheduledevents"
INSTANCE = "/metadata/instance?api-version="


def test_unknown_version_may_be_400(portable: bool) -> None:
    """The status of an unknown version is a setting. Source: E-3."""
    with serving(
        with_settings(scheduledevents_unknown_version_status=400), portable=portable
    ) as live:
        reply = live.get(f"{PATH}?api-version=2030-01-01")
        assert reply.status == 400
        assert b"newest-versions" in reply.body


def test_unknown_versions_have_two_statuses(portable: bool) -> None:
    """Scheduled Events and instance metadata have a setting each. Source: E-3."""
    for name, status, statuses in (
        ("scheduledevents", 404, (404, 400)),
        ("scheduledevents", 400, (400, 400)),
        ("instance", 404, (404, 404)),
    ):
        settings = with_settings(**{f"{name}_unknown_version_status": status})
        with serving(settings, portable=portable) as live:
            targets = (f"{PATH}?api-version=2030-01-01", f"{INSTANCE}2030-01-01")
            assert tuple(live.get(target).status for target in targets) == statuses


def test_oldest_version_may_be_switched_off(portable: bool) -> None:
    """Then it is unknown as any other, and no request without the header counts. E-2, E-3."""
    with serving(with_settings(min_api_version="2017-08-01"), portable=portable) as live:
        old = f"{PATH}?api-version=2017-03-01"
        assert b"Required metadata header" in live.post(approval("A"), old, metadata="").body
        assert live.get(old).status == 404
        assert live.control.approvals == []
        assert live.get(f"{PATH}?api-version=2017-08-01").status == 200
        assert live.get(f"{INSTANCE}2017-03-01").status == 200


@pytest.mark.parametrize("accepted", [False, True])
def test_post_without_header_may_be_accepted(portable: bool, accepted: bool) -> None:
    """An approval of the age in which clients left the header out, by a setting only. E-2."""
    with serving(with_settings(post_without_header=accepted), portable=portable) as live:
        versions = ("2017-03-01", "2017-08-01", "2017-11-01")
        targets = [f"{PATH}?api-version={version}" for version in versions]
        found = [live.post(approval("A"), target, metadata="").status for target in targets]
        assert found == [200 if accepted else 400] * 3
        assert live.get(targets[0], metadata="").status == 200
        assert live.get(targets[1], metadata="").status == 400


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8169", 200),
        ("[::1]:8169", 200),
        ("localhost", 200),
        ("emulator:8169", 200),
        ("ci.example", 200),
        ("evil.example", 400),
        ("127.0.0.1.evil.example", 400),
        ("evil.example:x", 400),
        ("evil.example.", 400),
    ],
)
def test_domain_may_be_refused(portable: bool, host: str, status: int) -> None:
    """As in the emulator: what a page of another site cannot have is accepted. Source: E-4."""
    settings = with_settings(domains_allowed=False, allowed_hosts=("ci.example",))
    with serving(settings, portable=portable) as live:
        assert live.get(host=host).status == status


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("169.254.169.254", 200),
        ("169.254.169.254:80", 200),
        ("Metadata.Internal", 200),
        ("[::1]:8080", 200),
        ("evil.example", 400),
        ("169.254.169.254.evil.example", 400),
    ],
)
def test_host_may_be_limited(portable: bool, host: str, status: int) -> None:
    """A page whose name resolves to the service is refused, where a setting says so. E-4."""
    allowed = ("169.254.169.254", "metadata.internal", "[::1]")
    with serving(with_settings(allowed_hosts=allowed), portable=portable) as live:
        assert live.get(host=host).status == status
        absolute = live.get(f"http://{host}{EVENTS}")  # it overrides the header: RFC 9112
        assert absolute.status == status
