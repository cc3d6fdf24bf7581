"""`forewarn doctor`: find faults of an installation.

The command only reads: the service's settings, its store, and the running service. Source: U-4.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forewarn_base.errors import CallerError, ForewarnError, OurError, PeerError
from forewarn_base.exit_codes import OK, REFUSED
from forewarn_base.protocol.timestamps import duration_text
from forewarn_base.values import value
from forewarn_server.cli.api_client import ApiClient
from forewarn_server.cli.application import noun_app
from forewarn_server.cli.defaults import CERTIFICATE_MS_MIN
from forewarn_server.cli.output import noun, print_structured, print_table
from forewarn_server.cli.parameters import (
    COMMON,
    Config,
    ServerOptions,
    settings_files,
)

if TYPE_CHECKING:
    from forewarn_base.clock import Clock
    from forewarn_base.settings import Settings
    from forewarn_store.engine import DatabaseFacts, Engine

doctor = noun_app("doctor")


#: Longest wait for the active process to renew its lease, in seconds: just over one term.
LEASE_S_MAX = 6.0
#: Interval between reads of the lease, in seconds.
LEASE_EVERY_S = 0.25
#: Largest difference between this machine's clock and the database's, in milliseconds. Source: H-6.
SKEW_MS_MAX = 1000
#: Free space below which a disk is nearly full, in bytes.
FREE_BYTES_MIN = 256 * 1024 * 1024
#: Age above which the last backup is reported: two days.
BACKUP_MS_MAX = 2 * 86_400_000
#: Delay above which an outbox destination is reported, in seconds.
OUTBOX_BEHIND_S_MAX = 300
#: Number of missing commits above which a follower is reported.
BEHIND_MAX = 1000


class StoreUnsafe(OurError):
    """The database may lose committed changes."""

    code = "store-unsafe"
    message = "The store {place} may lose changes that it has acknowledged: {reason}."
    advice = "Enable the named protection, or move the store to a local disk or to PostgreSQL."


class StoreReplica(PeerError):
    """The database is a read-only replica."""

    code = "store-replica"
    message = "The store {place} is a replica and accepts no changes."
    advice = "Give the address of the primary, or promote this database."


class DiskNearlyFull(PeerError):
    """The store's disk has little free space."""

    code = "disk-nearly-full"
    message = "The disk of the store {place} has {free} MiB left."
    advice = "Free space, or limit history (`[history] max_age_days`)."


class CertificateExpires(CallerError):
    """A certificate has expired or expires soon."""

    code = "certificate-expires"
    message = "The certificate of [{section}] is valid until {until}."
    advice = "Renew it, then run `forewarn reload`."


class BackupOld(CallerError):
    """The store's last backup is too old."""

    code = "backup-old"
    message = "The last backup started at {at}."
    advice = "Run `forewarn store backup`, and check the timer that runs backups."


class ClockSkewed(PeerError):
    """This machine's clock differs from the database's."""

    code = "clock-skewed"
    message = "This machine's clock differs by {skew_s:+.1f} s from the database's clock."
    advice = "Synchronise both clocks, for instance with chrony."


class LeaderAbsent(PeerError):
    """No process renews the lease."""

    code = "leader-absent"
    message = "No process is active: {reason}."
    advice = "Start `forewarn serve`, or read the log of the process that should be active."


class ServiceNotReady(PeerError):
    """The service answers, but is not ready."""

    code = "service-not-ready"
    message = "The service is not ready (state {state}): {reason}"
    advice = "Read the service's log."


class PartUnusable(PeerError):
    """The service cannot use a part of its state under its environment."""

    code = "part-unusable"
    message = "{text}"
    advice = (
        "Install or configure the missing part on the service's machine and restart the service, "
        "or change the policy, the hosts or the maintenance that needs it."
    )


class NodesBehind(PeerError):
    """Metadata nodes are disconnected or behind."""

    code = "nodes-behind"
    message = "Metadata nodes are behind or disconnected ({count}): {names}."
    advice = "Start `forewarn node run` on those hosts, and read the log there."


class NodesRefused(CallerError):
    """Metadata nodes request VMs of other nodes."""

    code = "nodes-refused"
    message = "Metadata nodes requested VMs of other nodes: {names}."
    advice = "Correct `[feed] hosts`, or the hosts in the settings of those nodes."


class DestinationBehind(PeerError):
    """An outbox destination has many undelivered entries."""

    code = "destination-behind"
    message = "The destination {name} is {count} entries behind: {reason}."
    advice = "Run `forewarn outbox`; the receiver must answer with a status below 300."


class FollowerBehind(PeerError):
    """A follower has stopped, or lacks many commits."""

    code = "follower-behind"
    message = "The follower {text}."
    advice = (
        "Read the follower's log, or restart it. A removed follower is forgotten within an hour."
    )


class StoresDiffer(CallerError):
    """The settings and the running service have different stores."""

    code = "stores-differ"
    message = "The running service and these settings use different stores."
    advice = "Name the service's settings (--config), or another service (--server)."


class SettingsExposed(CallerError):
    """Every user of the machine can read or write a file with secrets."""

    code = "settings-exposed"
    message = "Every user of this machine can read or write {path}, which contains secrets."
    advice = "Run `chmod o-rwx` on the file."


class VersionsDiffer(CallerError):
    """This command and the service have different versions."""

    code = "versions-differ"
    message = "The service has version {service}, this command {own}."
    advice = "Install the same version of both."


#: Checks of the store that a start needs.
_NEEDED = frozenset({"store", "schema"})


@value
class Examined:
    """The result of one check."""

    name: str
    #: `ok`, `problem` or `skipped`.
    result: str
    text: str
    code: str = ""
    advice: str = ""


@doctor.default
def _doctor(
    *,
    config: Config = (),
    common: ServerOptions = COMMON,
) -> int:
    """Find the faults of an installation."""
    from forewarn_base.clock import SystemClock  # noqa: PLC0415 - the same
    from forewarn_server.cli.api_client import client_of_settings  # noqa: PLC0415 - `--help` needs none

    files = settings_files(config)
    checker = Doctor(files, SystemClock(), lambda settings: client_of_settings(common, settings))
    checks = list(checker.checks())
    problems = [each for each in checks if each.result == "problem"]
    if common.structured:
        shown = [{name: getattr(each, name) for name in each.__match_args__} for each in checks]
        print_structured(common, {"sound": not problems, "checks": shown})
        return REFUSED if problems else OK
    print_table(("check", "result", "what"), [(c.name, c.result, c.text) for c in checks], empty="")
    for each in problems:
        print(f"\n{each.name}: {each.code}\n  {each.text}\n  {each.advice}")
    return REFUSED if problems else OK


class Doctor:
    """Checks one installation: its settings, files, store and service."""

    def __init__(
        self,
        files: list[Path],
        clock: Clock,
        client: Callable[[Settings], ApiClient],
        *,
        lease_s_max: float = LEASE_S_MAX,
    ) -> None:
        """Store the inputs of the checks.

        Args:
            files: the settings files.
            clock: this machine's clock.
            client: function that returns a client for some settings.
            lease_s_max: longest time to wait for the active process to renew its lease, in seconds.
        """
        self._files = files
        self._clock = clock
        self._client = client
        self._lease_s_max = lease_s_max
        #: Id of the store in the settings; empty while unread.
        self._epoch = ""
        #: Whether the service has answered.
        self._served = False

    def checks(self) -> Iterator[Examined]:
        """Yield the result of each check, in order; `skipped` marks a check that cannot run."""
        from forewarn_server.service.settings_check import check_settings  # noqa: PLC0415
        from forewarn_server.settings_loader import load_settings  # noqa: PLC0415

        settings: Settings | None = None
        try:
            settings = load_settings(self._files)
            check_settings(settings)
            used = ", ".join(map(str, self._files)) or "no settings file: the defaults (--config)"
            yield Examined("settings", "ok", used)
        except ForewarnError as error:
            yield _problem("settings", error)
        if settings is None:
            yield from (Examined(name, "skipped", "no settings") for name in ("store", "service"))
            return
        yield from _results("files", self._check_exposed(settings), "only the owner reads secrets")
        yield from _results("certificates", self._certificates(settings), "valid")
        store = list(self._store(settings))
        yield from store
        yield from self._service(settings)
        start = _results("start", _start(settings, held=self._served), "would succeed")
        unusable = any(each.result == "problem" and each.name in _NEEDED for each in store)
        for each in start:
            skipped = unusable and each.result == "ok"
            yield Examined("start", "skipped", "the store has a problem") if skipped else each

    def _check_exposed(self, settings: Settings) -> Iterator[ForewarnError]:
        from forewarn_server.service.secret_files import exposed_files  # noqa: PLC0415

        for file in exposed_files(self._files, settings):
            yield SettingsExposed(path=file)

    def _certificates(self, settings: Settings) -> Iterator[ForewarnError]:
        from forewarn_base.protocol.timestamps import iso8601  # noqa: PLC0415
        from forewarn_metadata.replication.tls import expiries  # noqa: PLC0415

        for section, until_ms in expiries(settings.certificates).items():
            if until_ms - self._clock.now_ms() < CERTIFICATE_MS_MIN:
                yield CertificateExpires(section=section, until=iso8601(until_ms))

    def _store(self, settings: Settings) -> Iterator[Examined]:
        from forewarn_store.addresses import location_of  # noqa: PLC0415

        try:
            engine = location_of(settings.store.url).open_for_reading()
        except ForewarnError as error:
            yield _problem("store", error)
            return
        try:
            began_ms = self._clock.now_ms()
            facts = engine.examine()
            now_ms = (began_ms + self._clock.now_ms()) // 2
            schema = tuple(_results("schema", _schema(engine), "of this version"))
            yield Examined("store", "ok", engine.place)
            yield from _results("database", _database(engine, facts), "keeps what it commits")
            yield from schema
            if all(each.result == "ok" for each in schema):
                yield self._backup(engine)
                yield from _results("commits", _commits(engine, settings), "are all in the store")
            if facts.clock_ms is not None:
                skew_ms = now_ms - facts.clock_ms
                skewed = [ClockSkewed(skew_s=skew_ms / 1000)] if abs(skew_ms) > SKEW_MS_MAX else []
                yield from _results("clock", skewed, f"{skew_ms:+} ms")
                yield from _results("lease", self._lease(engine), "is renewed")
                yield from _processes(engine)
            self._epoch = _epoch(engine)
        except ForewarnError as error:
            yield _problem("store", error)
        finally:
            engine.close()

    def _backup(self, engine: Engine) -> Examined:
        """Check the age of the last backup; backups of other programs are unknown."""
        from forewarn_base.protocol.timestamps import iso8601  # noqa: PLC0415

        with engine.reading() as transaction:
            times = [int(at_ms) for (at_ms,) in transaction.rows("backup_last")]
        if not times:
            return Examined("backup", "skipped", "no backup by `forewarn store backup` is recorded")
        if self._clock.now_ms() - times[0] > BACKUP_MS_MAX:
            return _problem("backup", BackupOld(at=iso8601(times[0])))
        return Examined("backup", "ok", f"started at {iso8601(times[0])}")

    def _lease(self, engine: Engine) -> Iterator[ForewarnError]:
        """Wait for the lease to be renewed."""
        until_ms = self._clock.elapsed_ms() + 1000 * self._lease_s_max
        first: tuple[object, ...] = ()
        while True:
            with engine.reading() as transaction:
                holder, beat, *_ = transaction.rows("lease")[0]
            if not holder:
                yield LeaderAbsent(reason="the lease is free")
                return
            first = first or (holder, beat)
            if (holder, beat) != first:
                return
            if self._clock.elapsed_ms() >= until_ms:
                reason = f"the lease was not renewed within {self._lease_s_max:g} s"
                yield LeaderAbsent(reason=reason)
                return
            threading.Event().wait(LEASE_EVERY_S)

    def _service(self, settings: Settings) -> Iterator[Examined]:
        from forewarn_base.version import version  # noqa: PLC0415
        from forewarn_server.cli.api_client import ApiRefused  # noqa: PLC0415

        try:
            client = self._client(settings)
            service = client.get("/v1/version")["version"]
            health = client.health()
            self._served = True
        except ForewarnError as error:
            self._served = isinstance(error, ApiRefused)  # the running service occupies the ports
            yield _problem("service", error)
            return
        differ = [VersionsDiffer(service=service, own=version())] if service != version() else []
        yield from _results("service", differ, f"answers at {client.server}")
        reason = health.get("reason", "")
        waits = [] if health["ready"] else [ServiceNotReady(state=health["state"], reason=reason)]
        yield from _results("ready", waits, "decides and shows")
        unusable = [PartUnusable(text=each) for each in health.get("degraded", ())]
        yield from _results("parts", unusable, "each part of the state can be used")
        yield from _results("nodes", _nodes(health), "show the newest documents")
        try:
            leader = client.get("/v1/leader")
            if self._epoch:
                other = leader.get("store", self._epoch) != self._epoch
                stores = [StoresDiffer()] if other else []
                yield from _results("same store", stores, "the service uses the store checked here")
            destinations = client.get("/v1/outbox")["destinations"]
        except ApiRefused as refusal:
            yield Examined("outbox", "skipped", str(refusal))
            return
        yield from _results("outbox", _outbox(destinations), "keeps up")


def _start(settings: Settings, *, held: bool) -> Iterator[ForewarnError]:
    """Yield the error with which a start of the service would fail, store errors excepted."""
    import asyncio  # noqa: PLC0415
    import logging  # noqa: PLC0415

    from forewarn_server.service.start_check import check_start_beside  # noqa: PLC0415

    logging.getLogger("forewarn").setLevel(logging.CRITICAL)
    try:
        asyncio.run(check_start_beside(settings, held=held))
    except ForewarnError as error:
        yield error


def _processes(engine: Engine) -> Iterator[Examined]:
    """Yield a result for each follower: whether the follower runs, and its missing commits."""
    from forewarn_store.errors import StoreContradiction  # noqa: PLC0415
    from forewarn_store.processes import processes  # noqa: PLC0415

    try:
        followers = [each for each in processes(engine) if not each.active]
    except StoreContradiction:  # the check of the schema reports this error
        return
    if not followers:
        yield Examined(
            "followers", "skipped", "no follower could take over from the active process"
        )
    for each in followers:
        name, lag = each.url or "without a URL", f"{each.behind} {noun(each.behind, 'commit')}"
        age = "" if each.runs else f"; not seen for {duration_text(int(each.age_s))}"
        sound = each.runs and each.behind <= BEHIND_MAX
        text = f"{name} has version {each.version} and is {lag} behind{age}"
        if sound:
            yield Examined("followers", "ok", text)
        else:
            yield _problem("followers", FollowerBehind(text=text))


def _commits(engine: Engine, settings: Settings) -> Iterator[ForewarnError]:
    """Yield an error if the store lacks a commit that is known to this machine or a process."""
    from forewarn_server.service.service_files import commit_file_of  # noqa: PLC0415
    from forewarn_store.lineage import lost_commit  # noqa: PLC0415

    lost = lost_commit(engine, commit_file_of(settings.store) or engine.commit_file)
    if lost is not None:
        yield lost


def _epoch(engine: Engine) -> str:
    """Return the id of the store's sequence of commits; empty before the first use."""
    with engine.reading() as transaction:
        return str(transaction.rows("service")[0][5])


def _results(name: str, problems: Iterable[ForewarnError], sound: str) -> Iterator[Examined]:
    """Yield a result for each problem, or one `ok` result if there are none."""
    yield from [_problem(name, each) for each in problems] or [Examined(name, "ok", sound)]


def _problem(name: str, error: ForewarnError) -> Examined:
    return Examined(name, "problem", str(error), error.code, error.advice_text())


def _database(engine: Engine, facts: DatabaseFacts) -> Iterator[ForewarnError]:
    for reason in facts.unsafe:
        yield StoreUnsafe(place=engine.place, reason=reason)
    if facts.is_replica:
        yield StoreReplica(place=engine.place)
    if facts.free_bytes is not None and facts.free_bytes < FREE_BYTES_MIN:
        yield DiskNearlyFull(place=engine.place, free=facts.free_bytes >> 20)


def _schema(engine: Engine) -> Iterator[ForewarnError]:
    from forewarn_store.errors import StoreContradiction, StoreSchemaOld  # noqa: PLC0415
    from forewarn_store.migrations import check_steps, every_step  # noqa: PLC0415

    known = every_step()
    try:
        with engine.reading() as transaction:
            done = transaction.rows("schema_steps")
    except StoreContradiction:  # no service has used this database yet
        done = []
    try:
        check_steps(engine.place, done, known, beside_newer=True)
    except ForewarnError as error:
        yield error
        return
    if len(done) < len(known):
        yield StoreSchemaOld(place=engine.place, done=len(done), known=len(known))


def _nodes(health: dict[str, Any]) -> Iterator[ForewarnError]:
    if behind := health.get("nodes_behind"):
        more = ", …" if len(behind) > 3 else ""
        yield NodesBehind(count=len(behind), names=", ".join(behind[:3]) + more)
    if refused := health.get("nodes_refused"):
        yield NodesRefused(names="; ".join(refused[:3]))


def _outbox(destinations: list[dict[str, Any]]) -> Iterator[ForewarnError]:
    for each in destinations:
        if each["error"] or each["behind_s"] > OUTBOX_BEHIND_S_MAX:
            reason = each["error"] or f"for {duration_text(each['behind_s'])}"
            yield DestinationBehind(name=each["name"], count=each["behind"], reason=reason)
