"""Delivery of transitions over HTTP: order, retries, restarts, and what an event says."""

import asyncio
import hashlib
import hmac
import json
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest

from forewarn_base.audit_chain import digest_after, signature_of
from forewarn_base.clock import SystemClock
from forewarn_base.settings import AuditSettings
from forewarn_core.fleet.step import StepResult
from forewarn_core.fleet.stimulus import LinkTicket
from forewarn_server.cli.main import main
from forewarn_server.outbox.cloudevents import CloudEvent
from forewarn_server.outbox.delivery import Delivery, Destination
from forewarn_server.outbox.destinations import DestinationInvalid, make_destinations
from forewarn_server.outbox.sink import DestinationOptions
from forewarn_store import Retention
from forewarn_store.errors import StoreUnavailable
from tests.api.live import FLEET, Json, Live
from tests.metadata.feeds import run, until
from tests.outbox.rig import Receiver, delivering, is_complete
from tests.serving import Request
from tests.waiting import wait_until


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A far side that takes everything."""
    made = Receiver()
    yield made
    made.close()


def started(receiver: Receiver, **options: object) -> Live:
    """Return a service with a fleet that delivers to a receiver."""
    table = {"kind": "webhook", "url": receiver.url, **options}
    service = Live(delivering({"hook": table}))
    service.fleet(**FLEET)
    return service


def last(service: Live) -> int:
    """Return the number of a service's last entry of history."""
    service.settle()
    return service.daemon.store.history_seq


def status(service: Live) -> Json:
    """Return what the operator API says of the only destination."""
    [told] = service.get("/v1/outbox")["destinations"]
    return told


def test_every_transition_is_delivered_in_order(receiver: Receiver) -> None:
    """Each entry of history becomes one CloudEvent, in order. Source: A-6."""
    service = started(receiver)
    service.post("/v1/hosts/h1/reboot")
    end = last(service)
    wait_until(lambda: is_complete(receiver.sequences(), end))
    assert receiver.sequences()[:end] == list(range(1, end + 1))  # the work goes on meanwhile
    actions = [each["data"]["action"] for each in receiver.events()[:end]]
    history = service.get("/v1/history?limit=100")["entries"][:end]
    assert actions == [each["action"] for each in history]
    service.stop()


def test_event_is_a_cloud_event_of_its_transition(receiver: Receiver) -> None:
    """An event has CloudEvents' attributes and says what was true at its transition. D-6, X-1."""
    receiver.status = 503  # everything is delivered only when the operation is over
    service = started(receiver)
    service.enable("web-0", "db-0")
    [operation] = service.post("/v1/vms/web-0/reboot")["operations"]
    service.post(f"/v1/operations/{operation['events'][0]}/approve")
    service.post(f"/v1/operations/{operation['id']}/complete")
    end = last(service)
    receiver.status = 200
    service.post("/v1/outbox/hook/retry")
    wait_until(lambda: is_complete(receiver.sequences(), end))
    by_action = {each["data"]["action"]: each for each in receiver.events()}
    states = {
        action: (by_action[action]["data"]["operation"]["state"], event["state"])
        for action in ("operation.announced", "event.approved", "operation.started")
        for event in by_action[action]["data"]["events"]
    }
    assert states == {
        "operation.announced": ("announced", "scheduled"),
        "event.approved": ("announced", "approved"),
        "operation.started": ("running", "started"),
    }
    event = by_action["event.approved"]
    assert event["specversion"] == "1.0"
    assert event["type"] == "forewarn.event.approved"
    assert event["subject"] == operation["events"][0]
    assert event["source"] == f"/forewarn/{service.daemon.store.epoch}"
    assert event["id"] == event["sequence"] == f"{event['data']['sequence']:012}"
    assert event["time"] == "2027-01-15T08:00:00Z"
    assert event["data"]["operation"]["vms"] == ["web-0"]
    assert event["data"]["events"][0]["outcome"] is None
    [ended] = by_action["operation.succeeded"]["data"]["events"]
    shown = service.get(f"/v1/events/{ended['id']}/outcome")
    assert ended["outcome"]["result"] == "completed"
    assert ended["outcome"].items() <= shown.items()
    service.stop()


def test_destination_that_is_away_is_tried_again_and_shown(receiver: Receiver) -> None:
    """A failing destination holds nothing up but itself, says why, and loses nothing. L-7."""
    receiver.status = 500
    service = started(receiver)
    wait_until(lambda: status(service)["state"] == "retrying")
    told = status(service)
    assert told["behind"] == last(service)
    assert "answered 500" in told["error"]
    service.clock.advance(3_600_000)
    assert status(service)["state"] == "dead"
    assert status(service)["behind_s"] == 3600
    receiver.status = 200
    service.post("/v1/outbox/hook/retry")
    wait_until(lambda: status(service)["behind"] == 0)
    assert status(service)["state"] == "delivering"
    assert receiver.sequences() == list(range(1, last(service) + 1))
    service.stop()


def test_operator_can_pass_over_what_is_refused(receiver: Receiver) -> None:
    """What a destination never takes can be skipped, up to an entry and no further."""
    receiver.status = 422
    service = started(receiver)
    wait_until(lambda: status(service)["state"] == "retrying")
    receiver.status = 200
    service.post("/v1/outbox/hook/skip", sequence=3)
    wait_until(lambda: status(service)["behind"] == 0)
    assert receiver.sequences() == list(range(4, last(service) + 1))
    assert status(service)["skipped"] == 3
    refused = service.call("POST", "/v1/outbox/nobody/retry")
    assert (refused.status, refused.code) == (404, "outbox-unknown-destination")
    service.stop()


def test_skip_during_a_delivery_holds(receiver: Receiver) -> None:
    """The end of a send does not take the destination back before what was skipped."""
    receiver.status = 503
    service = started(receiver)
    end = last(service)

    def skip(_: Request) -> bytes:
        service.post("/v1/outbox/hook/skip", sequence=end)
        return b""

    wait_until(lambda: status(service)["state"] == "retrying")
    receiver.respond, receiver.status = skip, 200
    service.post("/v1/outbox/hook/retry")
    wait_until(lambda: bool(receiver.taken) and status(service)["behind"] == 0)
    service.stop()
    assert receiver.sequences() == [1]
    assert end > 2


def test_delivery_goes_on_after_a_restart(receiver: Receiver, tmp_path: Path) -> None:
    """A cursor is durable: what happened while nobody delivered is delivered later. Source: L-7."""
    table = {"hook": {"kind": "webhook", "url": receiver.url}}
    settings = delivering(table, store=f"sqlite://{tmp_path}/f.db")
    service = Live(settings)
    service.fleet(**FLEET)
    wait_until(lambda: status(service)["behind"] == 0)
    receiver.status = 503
    service.post("/v1/hosts/h1/reboot")
    service.stop()
    receiver.status = 200
    service = Live(settings)
    wait_until(lambda: status(service)["behind"] == 0)
    assert is_complete(receiver.sequences(), last(service))
    assert receiver.sequences() == sorted(set(receiver.sequences()))
    service.stop()


def test_filter_says_what_is_delivered(receiver: Receiver) -> None:
    """Only actions that match are sent; the others are passed over and count as delivered."""
    service = started(receiver, include=["operation.*"], exclude=["*.planned"])
    service.post("/v1/hosts/h1/reboot")
    wait_until(lambda: status(service)["behind"] == 0)
    service.settle()
    actions = {each["data"]["action"] for each in receiver.events()}
    assert actions
    assert all(each.startswith("operation.") for each in actions)
    assert "operation.planned" not in actions
    service.stop()


def test_batches_and_signatures(receiver: Receiver, tmp_path: Path) -> None:
    """Several events go as one batch; a secret signs each request. Source: R-4."""
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef0123\n")
    service = started(receiver, batch=100, secret_file=str(secret))
    end = last(service)
    wait_until(lambda: is_complete(receiver.sequences(), end))
    request = receiver.taken[0]
    assert request.headers["content-type"].startswith("application/cloudevents-batch+json")
    head = f"forewarn-event:hook:{request.headers['forewarn-timestamp']}:".encode()
    right = hmac.new(b"0123456789abcdef0123", head + request.body, hashlib.sha256).hexdigest()
    assert request.headers["forewarn-signature"] == f"sha256={right}"
    service.stop()


def test_far_side_is_asked_first_where_that_is_wanted(receiver: Receiver) -> None:
    """CloudEvents' protection against abuse: no event before the far side allows it."""
    service = started(receiver, validate=True)
    wait_until(lambda: "does not allow" in status(service)["error"])
    assert receiver.sequences() == []
    receiver.answer["OPTIONS"] = ({"WebHook-Allowed-Origin": "forewarn"}, b"")
    service.post("/v1/outbox/hook/retry")
    wait_until(lambda: status(service)["behind"] == 0)
    assert receiver.taken[0].headers["webhook-request-origin"] == "forewarn"
    service.stop()


def test_history_is_kept_for_a_destination_that_is_away(receiver: Receiver, tmp_path: Path) -> None:
    """History is not removed before it was delivered, for a week; after that a gap is told."""
    receiver.status = 503
    service = started(receiver)
    service.post("/v1/hosts/h1/reboot")
    store, day_ms = service.daemon.store, 86_400_000
    retention = Retention(tmp_path, max_age_ms=day_ms)
    now_ms = service.clock.now_ms()
    told = "the driver has begun op-1"  # the last that comes of itself
    wait_until(lambda: told in str(service.get("/v1/history?limit=100")["entries"]))
    last(service)
    assert not store.trim(retention, now_ms + 2 * day_ms).entries
    removed = store.trim(retention, now_ms + 8 * day_ms).entries
    assert removed == last(service)
    receiver.status = 200
    service.post("/v1/hosts/h2/reboot")
    service.post("/v1/outbox/hook/retry")
    wait_until(lambda: status(service)["behind"] == 0)
    first = receiver.events()[0]
    assert first["type"] == "forewarn.outbox.gap"
    assert (first["data"]["first"], first["data"]["last"]) == (1, removed)
    assert receiver.sequences()[1] == removed + 1
    service.stop()


def test_event_grid_gets_its_schema_after_its_handshake(receiver: Receiver) -> None:
    """Azure's consumers get Scheduled Events in Event Grid's schema. Source: Z-2."""

    def respond(request: Request) -> bytes:
        if request.headers.get("aeg-event-type") != "SubscriptionValidation":
            return b""
        code = request.json[0]["data"]["validationCode"]
        return json.dumps({"validationResponse": code}).encode()

    receiver.status = 200
    service = started(receiver, kind="event-grid", topic="/subscriptions/s")
    wait_until(lambda: "did not return" in status(service)["error"])
    receiver.respond = respond
    service.post("/v1/outbox/hook/retry")
    service.enable("web-0", "db-0")
    [operation] = service.post("/v1/vms/web-0/reboot")["operations"]
    service.post(f"/v1/operations/{operation['events'][0]}/approve")
    service.post(f"/v1/operations/{operation['id']}/complete")
    last(service)
    wait_until(lambda: status(service)["behind"] == 0)
    kinds = [request.headers["aeg-event-type"] for request in receiver.taken]
    assert "Notification" in kinds
    told = [
        each
        for request in receiver.taken
        if request.headers["aeg-event-type"] == "Notification"
        for each in request.json
    ]
    statuses = [each["data"]["resourceInfo"]["properties"]["EventStatus"] for each in told]
    assert statuses == ["Scheduled", "Scheduled", "Started", "Completed"]
    one = told[0]
    assert one["eventType"].endswith("MaintenanceResources.ScheduledEventEmitted")
    properties = [each["data"]["resourceInfo"]["properties"] for each in told]
    assert properties[0]["Resources"] == ["web-0"]
    assert [bool(each["NotBefore"]) for each in properties] == [True, True, False, False]
    assert properties[0]["NotBefore"].endswith(" GMT")  # as VMs read it
    place = "/subscriptions/s/providers/Microsoft.Compute/virtualMachines/web-0/providers"
    event = properties[0]["EventId"]
    assert one["subject"] == f"{place}/microsoft.maintenance/scheduledevents/{event}"
    assert len({each["id"] for each in told}) == len(told)
    service.stop()


def test_owners_destination_has_only_what_is_theirs(receiver: Receiver) -> None:
    """Of work on a shared host it is sent the owner's VMs and events. Source: P-3."""
    service = started(receiver, owner="shop", batch=100)
    service.enable("web-0", "db-0")
    service.post("/v1/hosts/h1/reboot", description="two owners")
    service.document("web-0")
    wait_until(lambda: status(service)["sequence"] == last(service))
    told = [each["data"] for each in receiver.events()]
    assert not [each for each in told if "db" in json.dumps(each)]
    by_action = {each["action"]: each for each in told}
    assert by_action["operation.announced"]["operation"]["vms"] == ["web-0"]
    assert by_action["operation.announced"]["actor"] == "operator"
    assert by_action["vm.added"]["vm"] == "web-1"
    assert "outbox.gap" not in by_action  # others' entries leave no trace
    service.stop()


def test_signed_heads_of_the_audit_are_carried_elsewhere(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chain that was written again as a whole is found by a head from elsewhere. P-7."""
    table = {"kind": "webhook", "url": receiver.url, "include": ["audit.head"]}
    service = Live(replace(delivering({"heads": table}), audit=AuditSettings(key="k" * 32)))
    service.fleet(**FLEET)
    wait_until(receiver.events)
    [told] = [each["data"] for each in receiver.events()]
    sequence, _, digest = told["head"].partition(":")
    assert told["signature"] == signature_of(b"k" * 32, int(sequence), digest)
    monkeypatch.setenv("FOREWARN_SERVER", service.url)
    verify = ["audit", "verify", "--head", told["head"]]
    assert main(verify) == 0
    with service.daemon.store._engine.writing() as transaction:
        transaction.run_text("UPDATE audit SET principal = 'mallory' WHERE seq = 1")
        [only] = service.daemon.store.audit.page(0, 10)
        forged = digest_after("", 1, replace(only.record, principal="mallory"))
        transaction.run_text(f"UPDATE audit SET digest = '{forged}' WHERE seq = 1")
    assert main(["audit", "verify"]) == 0
    assert main(verify) == 1
    service.stop()


def test_event_grid_gets_what_groups_publish(receiver: Receiver) -> None:
    """A group can be left out, and choose the api-version. Source: Z-6."""
    service = started(receiver, kind="event-grid", topic="/subscriptions/s", validate=False)
    service.call("PUT", "/v1/groups/web", {"published": ""})
    service.call("PUT", "/v1/groups/db", {"published": "2019-08-01"})
    service.enable("web-0", "db-0")
    service.post("/v1/hosts/h1/reboot")
    last(service)
    wait_until(lambda: status(service)["behind"] == 0)
    told = [each["data"] for request in receiver.taken for each in request.json]
    assert {each["apiVersion"] for each in told} == {"2019-08-01"}
    properties = [each["resourceInfo"]["properties"] for each in told]
    assert {tuple(each["Resources"]) for each in properties} == {("db-0",)}
    assert not any("DurationInSeconds" in each for each in properties)
    service.stop()


def test_event_grid_gets_the_maintenances_of_a_managed_cluster(receiver: Receiver) -> None:
    """A declared maintenance is an event of AKS, the same until its end. Source: Z-11."""
    cluster = "/subscriptions/s/resourceGroups/g/providers/Microsoft.ContainerService"
    cluster += "/managedClusters/aks-1"
    service = started(receiver, kind="event-grid", validate=False, cluster=cluster)
    form = {"cause": "host-reboot", "hosts": ["h1"], "duration": 600, "reason": "kernel"}
    number = service.call("POST", "/v1/maintenances", form).json["maintenance"]["id"]
    service.post(f"/v1/maintenances/{number}/declare")
    service.settle()
    service.post(f"/v1/maintenances/{number}/cancel")
    last(service)
    wait_until(lambda: status(service)["behind"] == 0)
    told = [each for request in receiver.taken for each in request.json]
    kind = "Microsoft.ResourceNotifications.ContainerServiceEventResources.ScheduledEventEmitted"
    assert {each["eventType"] for each in told} == {kind}
    properties = [each["data"]["resourceInfo"]["properties"] for each in told]
    assert [each["eventStatus"] for each in properties] == ["Scheduled", "Canceled"]
    assert properties[0]["eventDetails"] == "host-reboot of 1 node: kernel"
    assert properties[0]["resources"] == [cluster]
    assert len({each["subject"] for each in told}) == 1
    assert told[0]["subject"].startswith(f"{cluster}/scheduledEvents/")
    assert len({each["id"] for each in told}) == 2
    service.stop()


def test_event_grid_is_validated_by_its_url(receiver: Receiver) -> None:
    """Who cannot echo the code opens the URL that came with it. Source: Z-2."""
    service = started(receiver, kind="event-grid", callback="https://forewarn.example/")
    wait_until(lambda: "validationUrl" in status(service)["error"])
    url = receiver.taken[0].json[0]["data"]["validationUrl"]
    path = url.removeprefix("https://forewarn.example")
    assert path.startswith("/v1/outbox/hook/validate?code=")
    wrong = service.call("GET", f"{path}x")
    assert (wrong.status, wrong.code) == (403, "outbox-validation-code-wrong")
    assert status(service)["sent"] == 0
    assert service.call("GET", path).status == 200
    wait_until(lambda: status(service)["behind"] == 0)
    assert status(service)["error"] == ""
    service.stop()


MARKUP = '<a href="http://x">x</a> <img src=x> [a](http://b) <!channel> <http://d|e> @everyone'


@pytest.mark.filterwarnings("ignore:.imghdr.:DeprecationWarning")  # Apprise imports it
def test_people_are_told_by_apprise(receiver: Receiver) -> None:
    """Mail and chat get what disturbs people, as text without mark-up. Source: F-5, P-12."""
    service = started(receiver)  # only for its fleet: Apprise has a service of its own
    service.stop()
    receiver.taken.clear()
    url = receiver.url.replace("http://", "json://")
    urls = [url, f"{url}?format=html", f"{url}?format=markdown"]
    service = Live(delivering({"people": {"kind": "apprise", "urls": urls}}))
    service.fleet(**FLEET)
    service.enable("web-0", "db-0")
    service.post("/v1/hosts/h1/reboot", description=MARKUP)
    last(service)
    wait_until(lambda: status(service)["behind"] == 0)
    messages = [request.json["message"] for request in receiver.taken]
    assert len(messages) == len(urls)
    assert not any(sign in message for message in messages for sign in ("<a", "<img", "](", "@"))
    told = [each.json for each in receiver.taken]
    [told] = [each for each in told if not {"<", "\\"} & {*each["message"]}]
    assert told["title"] == "Forewarn: op-1 is announced"
    assert "Reboot of h1 (host-reboot)" in told["message"]
    assert "VMs: db-0, web-0" in told["message"]
    assert "Not before: 2027-01-15T08:15:01Z" in told["message"]
    service.stop()


def test_command_shows_destinations_and_hurries_them(
    receiver: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    """`forewarn outbox` says how far each destination is and why it is not, and tries it. L-8."""
    receiver.status = 500
    service = started(receiver)
    server = ("--server", f"http://{service.host}:{service.port}")
    wait_until(lambda: status(service)["state"] == "retrying")
    assert main([*server, "outbox", "list"]) == 0
    told = capsys.readouterr().out
    assert "retrying" in told
    assert "answered 500" in told
    receiver.status = 200
    assert main([*server, "outbox", "retry", "hook"]) == 0
    wait_until(lambda: status(service)["behind"] == 0)
    assert main([*server, "outbox", "skip", "hook", "--to", "3"]) == 0
    assert main([*server, "outbox", "retry", "nobody"]) != 0
    assert "The destination nobody does not exist" in capsys.readouterr().err
    service.stop()


def test_far_side_that_hangs_keeps_no_process_from_ending(receiver: Receiver) -> None:
    """A request under way is on a thread that nobody waits for when the service stops. R-1."""
    going_on = threading.Event()

    def hang(_: Request) -> bytes:
        going_on.wait(60)
        return b""

    receiver.respond = hang
    service = started(receiver)
    wait_until(lambda: any(each.name == "outbox call" for each in threading.enumerate()))
    calls = [each for each in threading.enumerate() if each.name == "outbox call"]
    assert all(each.daemon for each in calls)
    service.stop()
    assert any(each.is_alive() for each in calls)
    going_on.set()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "must have a kind"),
        ({"kind": "webhook", "url": "http://example.org/"}, "must have an https url"),
        (
            {"kind": "kafka", "brokers": ["b:9092"], "user": "u"},
            "both user and password_file, or neither",
        ),
        (
            {"kind": "kafka", "brokers": ["b:9092"], "user": "u", "password_file": "/dev/null"},
            "must have tls = true for b:9092",
        ),
        ({"kind": "nats", "servers": ["http://x"]}, "must have servers with nats://"),
        (
            {"kind": "nats", "servers": ["tls://a", "nats://b:4222"], "token_file": "t"},
            "must have tls:// for b:4222, to protect the token",
        ),
        ({"kind": "nats", "servers": ["nats://me:word@b"]}, "must have tls:// for b, to protect"),
        ({"kind": "apprise"}, "must have urls or urls_file"),
        ({"kind": "webhook", "url": "https://x", "secret_file": "/nowhere"}, "cannot be used"),
    ],
    ids=[
        "no-kind",
        "unprotected",
        "user-alone",
        "kafka",
        "scheme",
        "token",
        "word",
        "nobody",
        "no-secret",
    ],
)
def test_unusable_destination_is_refused(options: dict[str, object], problem: str) -> None:
    """A table that cannot be meant is refused at the start, with what is wrong."""
    with pytest.raises(DestinationInvalid, match=problem):
        make_destinations({"one": options})


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "webhook", "url": "http://example.org/hidden"},
        {"kind": "webhook", "url": "https://example.org:hidden/"},
        {"kind": "webhook", "url": ["https://example.org/hidden"]},
        {"kind": "webhook", "url": "https://x", "token_file": ["hidden"]},
        {"kind": "nats", "servers": ["http://me:hidden@b"]},
        {"kind": "apprise", "urls": "slack://hidden"},
    ],
)
def test_refused_destination_shows_no_secret(options: dict[str, object]) -> None:
    """Start-up errors stand in logs."""
    with pytest.raises(DestinationInvalid) as refused:
        make_destinations({"one": options})
    assert "hidden" not in str(refused.value)


def test_unknown_option_is_refused() -> None:
    """An option that no destination of its kind has is named."""
    with pytest.raises(DestinationInvalid) as refused:
        make_destinations({"one": {"kind": "webhook", "url": "https://x", "colour": "red"}})
    assert str(refused.value).startswith("[outbox.one] has the unknown member 'colour'; known: ")
    assert "'Outbox'" in refused.value.advice_text()


def test_ticket_is_delivered_whole_with_each_change(receiver: Receiver) -> None:
    """Another ticket system can create, update and close its own. Source: T-10."""
    service = started(receiver)
    form = {"target_kind": "vm", "target": "web-0", "description": "disk errors"}
    ticket = service.call("POST", "/v1/tickets", form).json
    service.post(f"/v1/tickets/{ticket['id']}/link", external="INC1")
    service.post(f"/v1/tickets/{ticket['id']}/close", action="disk replaced")
    end = last(service)
    wait_until(lambda: is_complete(receiver.sequences(), end))
    by_action = {each["data"]["action"]: each["data"] for each in receiver.events()}
    opened = by_action["ticket.opened"]["ticket"]
    assert (opened["id"], opened["external"]) == (ticket["id"], "")
    closed = by_action["ticket.closed"]["ticket"]
    assert (closed["state"], closed["external"]) == ("closed", "INC1")
    assert (closed["description"], closed["action"]) == ("disk errors", "disk replaced")
    assert "ticket" not in by_action["host.added"]
    service.stop()


def test_answer_names_the_receivers_ticket(receiver: Receiver) -> None:
    """It is kept, also if the first attempt fails; a malformed answer loses nothing. T-10."""

    def respond(request: Request) -> bytes:
        ticket = request.json["data"].get("ticket")
        if ticket is None:
            return b"not read"
        if ticket["description"] == "odd":
            return b"[" * 100_000
        return json.dumps({"external": f"INC-{ticket['id']}"}).encode()

    receiver.respond, receiver.status = respond, 503
    service = started(receiver, include=["ticket.*", "host.*"], links_tickets=True)
    form = {"target_kind": "vm", "target": "web-0", "category": "gpu"}
    odd = service.call("POST", "/v1/tickets", {**form, "description": "odd"}).json
    ticket = service.call("POST", "/v1/tickets", {**form, "description": "no GPU"}).json
    wait_until(lambda: bool(receiver.refused))
    receiver.status = 200
    service.post("/v1/outbox/hook/retry")
    path = f"/v1/tickets/{ticket['id']}"
    wait_until(lambda: service.get(path)["external"] == f"INC-{ticket['id']}")
    service.post(f"{path}/link", external="INC7")  # the answer to the next event replaces it not
    service.post(f"{path}/ask", text="Since when?")
    assert service.get(f"/v1/tickets/{odd['id']}")["external"] == ""
    end = last(service)
    wait_until(lambda: status(service)["sequence"] == end)
    sent = [each["data"] for each in receiver.events()]
    linked = [each["ticket"]["external"] for each in sent if each["action"] == "ticket.linked"]
    assert linked == [f"INC-{ticket['id']}", "INC7"]
    assert service.get(path)["external"] == "INC7"
    entries = service.get("/v1/history?limit=500")["entries"]
    assert next(e["actor"] for e in entries if e["action"] == "ticket.linked") == "outbox hook"


class Ticketing:
    """A receiver that has a ticket of its own for each event about a ticket."""

    batch_max = 1

    def __init__(self) -> None:
        """Have received nothing."""
        self.received: list[int] = []
        self._links: list[LinkTicket] = []

    async def open(self) -> None:
        """Accept everything."""

    async def close(self) -> None:
        """Do nothing."""

    async def send(self, events: Sequence[CloudEvent]) -> None:
        """Note the entries, and answer with an id."""
        for event in events:
            self.received.append(int(event["sequence"]))
            if ticket := event["data"].get("ticket"):
                self._links.append(LinkTicket(int(ticket["id"][2:]), "INC1", keeps=True))

    def take_links(self) -> Sequence[LinkTicket]:
        """Return the answers."""
        links, self._links = self._links, []
        return links


def test_change_counts_as_delivered_only_with_the_receivers_id(receiver: Receiver) -> None:
    """While the id cannot be stored, the change is sent again, and its place is kept. T-10."""
    service = started(receiver)
    form = {"target_kind": "vm", "target": "web-0", "category": "gpu", "description": "no GPU"}
    assert service.call("POST", "/v1/tickets", form).status == 201
    opened = last(service)
    far = Ticketing()
    places: list[int] = []

    def submit(link: LinkTicket, _: str) -> Future[StepResult]:
        places.append(delivery.cursor)
        answer: Future[StepResult] = Future()
        if len(places) == 1:
            answer.set_exception(StoreUnavailable(place="s", reason="its disk is full"))
        else:
            answer.set_result(StepResult())
        delivery.hurry.set()
        return answer

    options = DestinationOptions(kind="webhook", include=("ticket.*",))
    destination = Destination("far", far, options)
    delivery = Delivery(destination, service.daemon.store, SystemClock(), 0, submit)

    async def story() -> None:
        task = asyncio.create_task(delivery.run())
        await until(lambda: delivery.cursor >= opened)
        task.cancel()

    run(story())
    assert far.received == [opened, opened], f"T-10: entry {opened} was sent as {far.received}"
    assert max(places) < opened, f"T-10: entry {opened} counts before its id, with {places}"
    service.stop()


def test_webhook_that_links_tickets_sends_them_one_by_one() -> None:
    """An answer to a batch would name a ticket of no event. Source: T-10."""
    table = {"kind": "webhook", "url": "http://127.0.0.1/", "links_tickets": True}
    for more in ({"batch": 2}, {"owner": "shop"}):
        with pytest.raises(DestinationInvalid, match="links tickets"):
            make_destinations({"hook": {**table, **more}})
