"""Real brokers behind TLS and a secret: delivered to by who has both, and by nobody else."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sinks_tests.brokers import HERE, Broker, Nats, SecureKafka, SecureNats
from tests.api.live import FLEET, Json, Live
from tests.e2e.certificates import make_certificates
from tests.outbox.rig import delivering
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

DELIVERED_S_MAX = 120
SECRETS = ("token_file", "password_file")


@pytest.fixture(scope="module", params=[SecureNats, SecureKafka], ids=["nats", "kafka"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    """A broker of its own, with TLS and a secret."""
    made = request.param(tmp_path_factory.mktemp("broker"))
    try:
        made.prepare()
        yield made
    finally:
        made.kill()


def status(service: Live) -> Json:
    """Return what the operator API says of the only destination."""
    [told] = service.get("/v1/outbox")["destinations"]
    return told


def refused(options: dict[str, object]) -> str:
    """Return the error of a destination that may receive nothing."""
    with Live(delivering({"broker": options})) as service:
        service.fleet(**FLEET)
        wait_until(lambda: status(service)["failures"], limit_s=DELIVERED_S_MAX)
        told = status(service)
        assert told["sent"] == 0
        return str(told["error"])


def test_broker_with_tls_and_a_secret_is_delivered_to(broker: Broker) -> None:
    """The settings of the destination are all that is needed. Source: A-6."""
    before = len(broker.events())
    with Live(delivering({"broker": broker.options})) as service:
        service.fleet(**FLEET)
        service.post("/v1/hosts/h1/reboot")
        service.settle()
        wait_until(lambda: not status(service)["behind"], limit_s=DELIVERED_S_MAX)
        assert status(service)["error"] == ""
        assert len(broker.events()) - before == status(service)["sent"] > 0


def test_broker_of_another_authority_is_not_believed(broker: Broker, tmp_path: Path) -> None:
    """Whose certificate nobody trusted has signed is told nothing, not even the secret."""
    make_certificates(tmp_path, other=HERE)
    before = len(broker.events())
    error = refused({**broker.options, "ca_file": f"{tmp_path}/ca.pem"})
    assert "cannot be reached" in error
    assert len(broker.events()) == before


def test_broker_refuses_a_wrong_secret(broker: Broker, tmp_path: Path) -> None:
    """What the broker refuses is a failure that says so, and is tried again."""
    (tmp_path / "wrong").write_text("not-the-secret")
    wrong = {name: f"{tmp_path}/wrong" for name in SECRETS if name in broker.options}
    assert wrong
    assert "cannot be reached" in refused({**broker.options, **wrong})


def test_tls_is_not_given_up(tmp_path: Path) -> None:
    """A server that offers no TLS is not delivered to where TLS is wanted."""
    plain = Nats(tmp_path)
    try:
        plain.prepare()
        make_certificates(tmp_path, other=HERE)
        options = {**plain.options, "ca_file": f"{tmp_path}/ca.pem"}
        assert "offers no TLS" in refused(options)
        options = {**plain.options, "servers": [f"tls://127.0.0.1:{plain.port}"]}
        assert "offers no TLS" in refused(options)
        assert plain.events() == []
    finally:
        plain.kill()
