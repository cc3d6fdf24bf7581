"""The webhook driver: signed both ways, once to effect, tried again, and found after a crash."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from forewarn_base.settings import NamedTable
from forewarn_conformance.driver_checks import run_driver_checks
from forewarn_conformance.driver_trial import Subject
from forewarn_conformance.run import Verdict
from forewarn_drivers import PlatformUnanswered
from forewarn_drivers.registry import DriverUnusable, make_driver
from forewarn_drivers.task_records import TaskAborted, TaskForgotten, TaskSuperseded
from forewarn_drivers.webhook.driver import WebhookDriver, WebhookFailed
from forewarn_drivers.webhook.signing import REQUEST, ReportRefused, signed
from forewarn_server.api.routes import PUBLIC_BYTES_MAX
from forewarn_store import open_store
from tests.api.live import SETTINGS, Live
from tests.drivers.dripping import HEADS, dripping
from tests.drivers.tasks import now_ms, task
from tests.drivers.ticket_system import SECRET, TicketSystem
from tests.waiting import wait_until


@pytest.fixture
def far() -> Iterator[TicketSystem]:
    """A ticket system."""
    system = TicketSystem()
    yield system
    system.close()


@pytest.fixture
def options(far: TicketSystem, tmp_path: Path) -> dict[str, object]:
    """What the settings say of the driver."""
    (tmp_path / "secret").write_bytes(SECRET + b"\n")
    return {
        "kind": "webhook",
        "url": far.url,
        "secret_file": str(tmp_path / "secret"),
        "backoff_s": 0,
        "poll_s": 0.1,
    }


def driver_of(options: dict[str, object], **more: object) -> WebhookDriver:
    """Return the driver again, as after a restart of the service."""
    store = str(options["secret_file"]).replace("secret", "store.db")
    open_store(store).close()
    driver = make_driver("tickets", {**options, **more}, store)
    assert isinstance(driver, WebhookDriver)
    return driver


def test_webhook_opens_one_ticket_and_hears_of_its_end(
    far: TicketSystem, options: dict[str, object]
) -> None:
    """However often it begins, also after a restart; reports are durable. Source: R-2, R-4."""
    driver = driver_of(options)
    driver.begin(task())
    driver.begin(task())
    driver_of(options).begin(task(generation=2))
    assert far.opened == {"op-12/1": 1}
    assert not driver.progress(task(), now_ms()).done
    driver.take_report(*far.report("tickets", {"task": "op-12/1", "text": "in hand", "share": 0.2}))
    said = driver.progress(task(), now_ms())
    assert (said.text, said.share, said.done) == ("in hand", 0.2, False)
    driver.take_report(*far.report("tickets", {"task": "op-12/1", "done": True}))
    assert driver_of(options).progress(task(), now_ms()).done


def test_webhook_tries_again_and_then_fails(far: TicketSystem, options: dict[str, object]) -> None:
    """What may be better later is sent again with the same key, a refusal is not. Source: R-4."""
    driver = driver_of(options)
    far.troubles = [503, 429]
    driver.begin(task())
    assert far.opened == {"op-12/1": 1}
    far.troubles = [403, 403]
    with pytest.raises(WebhookFailed, match=r"answered 403: later \(begin of op-13/1\)"):
        driver.begin(task(number=13))
    assert len(far.troubles) == 1
    far.close()
    with pytest.raises(WebhookFailed, match="cannot be reached"):
        driver.begin(task(number=14))


def test_webhook_without_an_answer_is_no_refusal(
    far: TicketSystem, options: dict[str, object]
) -> None:
    """The ticket may have been opened; Forewarn asks again with the same key. Source: R-1, R-4."""
    driver = driver_of(options, polls=True)
    driver.begin(task())
    for troubles in ([503] * 3, [429] * 3):
        far.troubles = troubles
        with pytest.raises(PlatformUnanswered):
            driver.progress(task(), now_ms())
    far.troubles = [403]
    with pytest.raises(WebhookFailed) as refused:
        driver.progress(task(), now_ms())
    assert not isinstance(refused.value, PlatformUnanswered)
    far.close()
    with pytest.raises(PlatformUnanswered):
        driver.begin(task(number=13))


@pytest.mark.parametrize("secret", ["/hidden", "?sig=hidden", "/hidden space", "/hidd\u00e9n"])
def test_webhook_failure_names_the_host_alone(
    far: TicketSystem, options: dict[str, object], secret: str
) -> None:
    """The path and query of a webhook are often its password; reasons stand in history."""
    driver = driver_of(options, url=far.url + secret)
    far.troubles = [403]
    with pytest.raises(WebhookFailed) as failed:
        driver.begin(task())
    assert str(failed.value).startswith(far.url.removesuffix("/tickets") + " ")
    assert "hidd" not in str(failed.value)


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
def test_webhook_takes_no_answer_that_never_ends(options: dict[str, object], head: bytes) -> None:
    """A byte now and then holds no call beyond its time; it counts as no answer. Source: R-4."""
    with dripping(head) as url:
        driver = driver_of(options, url=url, timeout_s=0.1)
        with pytest.raises(WebhookFailed, match=r"the answer takes more than 0\.1 s"):
            driver.begin(task())


@pytest.mark.parametrize(
    ("report", "how", "reason"),
    [
        ({"done": True}, {"secret": b"not the secret of both"}, "forewarn-signature is wrong"),
        ({"done": True}, {"age_s": 301}, "more than 300 s"),
        ({"done": True}, {"age_s": -400}, "more than 300 s"),
        ({"task": "op-99/1", "done": True}, {}, "no task 'op-99/1'"),
        ({"task": "../../etc", "done": True}, {}, "no task '../../etc'"),
        ({"task": ["op-12/1"]}, {}, "no task"),
    ],
    ids=["forged", "old", "ahead", "other", "path", "list"],
)
def test_webhook_refuses_a_report_it_cannot_believe(
    far: TicketSystem,
    options: dict[str, object],
    report: dict[str, object],
    how: dict[str, int],
    reason: str,
) -> None:
    """Forged, stale or of a task that does not run: refused, and nothing is changed. R-4."""
    driver = driver_of(options)
    driver.begin(task())
    headers, body = far.report("tickets", {"task": "op-12/1", **report}, **how)  # type: ignore[arg-type]
    with pytest.raises(ReportRefused, match=reason.replace("[", r"\[")):
        driver.take_report(headers, body)
    assert not driver.progress(task(), now_ms()).done


def test_webhook_refuses_a_replay(far: TicketSystem, options: dict[str, object]) -> None:
    """A report counts once, also after a restart; none counts behind the end. Source: R-4."""
    driver = driver_of(options)
    driver.begin(task())
    old = far.report("tickets", {"task": "op-12/1", "share": 0.1}, age_s=5)
    driver.take_report(*old)
    driver.take_report(*far.report("tickets", {"task": "op-12/1", "share": 0.9}))
    with pytest.raises(ReportRefused, match="received before"):
        driver_of(options).take_report(*old)
    driver.take_report(*far.report("tickets", {"task": "op-12/1", "done": True}))
    with pytest.raises(ReportRefused, match="has ended"):
        driver.take_report(*far.report("tickets", {"task": "op-12/1", "failed": "no"}))
    assert driver.progress(task(), now_ms()).done


@pytest.mark.parametrize("end", [{"done": True}, {"failed": "no disk"}], ids=["done", "failed"])
def test_end_of_a_task_counts_whatever_the_clocks_of_its_senders(
    far: TicketSystem, options: dict[str, object], end: dict[str, object]
) -> None:
    """One sender's clock is ahead, and reports progress; another one reports the end. R-4."""
    driver = driver_of(options)
    driver.begin(task())
    driver.take_report(*far.report("tickets", {"task": "op-12/1", "share": 0.9}, age_s=-200))
    with pytest.raises(ReportRefused, match="received before"):
        driver.take_report(*far.report("tickets", {"task": "op-12/1", "share": 0.8}))
    driver.take_report(*far.report("tickets", {"task": "op-12/1", **end}))
    progress = driver.progress(task(), now_ms())
    assert progress.done or progress.failed == "no disk"


def test_webhook_does_not_take_its_own_request_for_a_report(options: dict[str, object]) -> None:
    """A signature says which way the message went, and for which driver. Source: R-4."""
    driver = driver_of(options)
    driver.begin(task())
    body = b'{"task": "op-12/1", "done": true}'
    headers = signed(SECRET, REQUEST, "tickets", time_s=now_ms() // 1000, body=body)
    with pytest.raises(ReportRefused):
        driver.take_report(headers, body)
    headers, body = TicketSystem.report(None, "other", {"task": "op-12/1", "done": True})  # type: ignore[arg-type]
    with pytest.raises(ReportRefused):
        driver.take_report(headers, body)


def test_webhook_heeds_aborts_and_writers(far: TicketSystem, options: dict[str, object]) -> None:
    """An aborted task is not begun and not reported on; old writers are refused. R-2, L-7."""
    driver = driver_of(options)
    driver.begin(task(generation=2))
    with pytest.raises(TaskSuperseded):
        driver.begin(task(number=13, generation=1))
    driver.abort(task(generation=2))
    with pytest.raises(TaskAborted):
        driver.begin(task(attempt=2, generation=2))
    with pytest.raises(ReportRefused, match="no task"):
        driver.take_report(*far.report("tickets", {"task": "op-12/1", "done": True}))
    with pytest.raises(TaskForgotten):
        driver.progress(task(number=77), now_ms())
    assert far.aborted == {"op-12"}
    assert driver.discover() == {"hosts": {"h1": {}}}


@pytest.mark.parametrize(
    ("options_more", "reason"),
    [
        ({"url": "http://tickets.example/"}, "neither https nor on this machine"),
        ({"url": "ftp://localhost/"}, "neither https"),
        ({"secret_file": "/dev/null"}, "shorter than 16 bytes"),
        ({"secret_file": "/nowhere"}, "No such file"),
    ],
    ids=["plain", "scheme", "short", "missing"],
)
def test_webhook_refuses_settings_that_protect_nothing(
    options: dict[str, object], options_more: dict[str, object], reason: str
) -> None:
    """Tasks are not sent where others read them, nor signed with what can be guessed. R-4."""
    with pytest.raises(DriverUnusable, match=reason):
        driver_of(options, **options_more)


def test_webhook_that_polls_passes_the_suite(far: TicketSystem, options: dict[str, object]) -> None:
    """The webhook driver keeps every promise, with a real far side. Source: R-6."""
    subject = Subject(
        lambda: driver_of(options, polls=True),
        "h1",
        effects=lambda name: far.opened[name],
        call_s=10,
        task_s=10,
    )
    results = list(run_driver_checks(subject))
    assert [r.reason for r in results if r.verdict is Verdict.FAILED] == []


def test_report_reaches_the_operation_through_the_operator_api(
    far: TicketSystem, options: dict[str, object]
) -> None:
    """A ticket that is closed ends the operation, with no token but its signature. R-4."""
    tables = (NamedTable("tickets", options),)
    drivers = replace(SETTINGS.drivers, default="tickets", tables=tables)
    with Live(replace(SETTINGS, drivers=drivers)) as live:
        live.fleet(hosts={"h1": {}}, groups={"g": {}}, vms={"web_0": {"host": "h1", "group": "g"}})
        task_id = live.post("/v1/hosts/h1/reboot")["operations"][0]["id"] + "/1"
        live.advance(1000)
        wait_until(lambda: far.opened[task_id])
        headers, body = far.report("tickets", {"task": task_id, "done": True})
        headers["forewarn-signature"] = "sha256=\u00e9"
        for refused, status in ((body, 403), (b" " * (PUBLIC_BYTES_MAX + 1), 413)):
            reply = live.call("POST", "/v1/driver-reports", body=refused, headers=headers)
            assert reply.status == status
        for secret, status in ((b"another secret, as long", 403), (SECRET, 200)):
            report: dict[str, object] = {"task": task_id, "done": True}
            headers, body = far.report("tickets", report, secret=secret)
            reply = live.call("POST", "/v1/driver-reports", body=body, headers=headers)
            assert reply.status == status, reply
        path = f"/v1/operations/{task_id.partition('/')[0]}"

        def succeeded() -> bool:
            live.advance(1)
            return bool(live.get(path)["operation"]["state"] == "succeeded")

        wait_until(succeeded)
