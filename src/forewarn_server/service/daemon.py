"""The whole service in one process, with settings, store, drivers, control and metadata.

This module only connects parts in order. The metadata addresses open before the operator API is
imported, because VMs come first.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import partial
from typing import TYPE_CHECKING

from forewarn_base.clock import SystemClock
from forewarn_base.errors import ForewarnError
from forewarn_core.fleet.stimulus import Proceed
from forewarn_metadata.endpoint.server import MetadataServer
from forewarn_metadata.replication.messages import NodeTroubles
from forewarn_metadata.replication.tls import expiries
from forewarn_server.control.plane import ControlPlane
from forewarn_server.control.planner_host import PlannerProcess
from forewarn_server.control.readable import ProcessFacts
from forewarn_server.control.run_loop import ControlLoop
from forewarn_server.control.service_state import Liveness
from forewarn_server.control.standby import (
    LeaseKeeper,
    StateFollower,
    UnsharedLease,
)
from forewarn_server.service.address_probes import check_addresses
from forewarn_server.service.answering import Answering
from forewarn_server.service.bridge import Bridge
from forewarn_server.service.commit_checks import CommitChecks
from forewarn_server.service.configured import ConfiguredParts
from forewarn_server.service.credentials import ServedCertificates
from forewarn_server.service.hooks import NO_HOOKS, ServiceHooks
from forewarn_server.service.lease_holding import LeaseHolder, take_lease
from forewarn_server.service.node_feed import NodeFeed
from forewarn_server.service.observers import make_observers
from forewarn_server.service.operators import OperatorApi, imported
from forewarn_server.service.outbox_runner import OutboxRunner
from forewarn_server.service.parts import ActiveParts, BoundAddresses, FollowerParts, driver_setup
from forewarn_server.service.past import find_outcome, keep_history, problems_of
from forewarn_server.service.service_files import commit_file_of
from forewarn_server.service.store_watch import StoreWatch
from forewarn_store import open_store
from forewarn_store.errors import StoreWentBack
from forewarn_store.lease import Tenure
from forewarn_store.lineage import MEMORY

if TYPE_CHECKING:
    from collections.abc import Callable

    from forewarn_base.clock import Clock
    from forewarn_base.ids import Ids
    from forewarn_base.settings import Settings
    from forewarn_core.fleet.step import StepResult
    from forewarn_drivers import Driver
    from forewarn_metadata.replication.messages import DocumentChange
    from forewarn_metadata.replication.server import FeedServer
    from forewarn_server.api.relay import Relay
    from forewarn_server.api.standby import ActiveProcess
    from forewarn_server.control.plane import StateView
    from forewarn_server.outbox.outbox import Outbox
    from forewarn_server.service.workers import Workers

log = logging.getLogger("forewarn")


class Daemon:
    """One running service. Use it on one event loop."""

    def __init__(
        self, settings: Settings, *, clock: Clock, ids: Ids, hooks: ServiceHooks = NO_HOOKS
    ) -> None:
        """Create the parts without opening anything.

        Raises:
            DriverUnknown: the default driver does not exist.
            DriverUnusable: a driver's options are invalid.
            DestinationInvalid: a destination of the outbox is invalid.
            GateInvalid: a gate contradicts itself.
            SettingInvalid: the policy would break a promise.
        """
        self.settings = settings
        self.clock = clock
        self.ids = ids
        self.configured = ConfiguredParts(settings)
        #: The rules of notices, with the policy of maintenances until an operator applies one.
        self.policy = self.configured.policy
        self.hooks = hooks
        self._new_guid = hooks.new_guid or partial(ids.guid, "event")
        #: Returns further routes for the operator API.
        self.more_routes = hooks.more_routes
        #: Applies changed settings, and returns the sections that need a restart.
        self.reload = hooks.reload(self)
        #: Why the service ended on its own; None while the service runs, and after a stop.
        self.failure: ForewarnError | None = None
        #: Set when the service should end.
        self.ended = asyncio.Event()
        #: Addresses of the metadata service; None while it does not listen.
        self.bound: BoundAddresses | None = None
        #: The parts in use; None before the start. A takeover replaces the follower's by the
        #: active process's.
        self.parts: FollowerParts | ActiveParts | None = None
        #: Address of the metrics; empty: none.
        self.metrics_address = ""
        #: Makes the plans of maintenances, in processes if large.
        self.planner = PlannerProcess()
        #: The APIs for operators.
        self.operators = OperatorApi(self)
        #: The certificates in use.
        self.certificates = ServedCertificates()
        #: Whether the event loop and the deciding thread respond.
        self.liveness = Liveness(SystemClock().elapsed_ms)
        #: The lease of the store; without a shared store it never lapses.
        self._lease: LeaseKeeper | UnsharedLease = UnsharedLease()
        self._tenure: Tenure | None = None
        self._task: asyncio.Future[None] | None = None
        self._closing = contextlib.AsyncExitStack()

    # ---- the parts in use ----------------------------------------------------------------------

    @property
    def active(self) -> ActiveParts | None:
        """The parts of the active process; None while this process does not decide."""
        return self.parts if isinstance(self.parts, ActiveParts) else None

    @property
    def control(self) -> ControlLoop:
        """The control plane of the active process."""
        assert self.active is not None, "this process does not decide"
        return self.active.control

    @property
    def metadata(self) -> MetadataServer:
        """The metadata service of this process."""
        assert self.parts is not None, "the service has not started"
        return self.parts.metadata

    @property
    def feed(self) -> FeedServer | None:
        """The feed for metadata nodes in other processes; None without nodes."""
        return self.parts.feed if self.parts else None

    @property
    def workers(self) -> Workers | None:
        """The processes that share the metadata addresses; None without workers."""
        return self.active.workers if self.active else None

    @property
    def outbox(self) -> Outbox | None:
        """Delivers transitions; None without a destination."""
        return self.active.outbox.outbox if self.active else None

    @property
    def drivers(self) -> dict[str, Driver]:
        """The drivers by their names."""
        return self.configured.drivers

    # ---- life ----------------------------------------------------------------------------------

    async def start(self) -> BoundAddresses:
        """Check the addresses, open the store, run the control loop, listen.

        Raises:
            ForewarnError: an address, the store or a setting is unusable; everything is closed
            again.
        """
        try:
            await check_addresses(self.settings)
            followed = await self._open()
            metadata = await self._decide(followed)
            self.hooks.on_serving()
            self._closing.push_async_callback(self.operators.stop)
            await self.operators.serve(self.control)
            if followed is not None:
                await asyncio.to_thread(followed.control.stop_reads)
            await self.operators.serve_azure()
        except BaseException:
            await self.stop()
            raise
        operators = self.operators
        self.bound = BoundAddresses(
            metadata, operators.address, operators.azure, operators.azure_certificate
        )
        self._lease.renew()
        return self.bound

    async def stop(self) -> None:
        """Stop listening, finish running calls, close the store; do not wait for a plan."""
        self.planner.stop()
        await self._closing.aclose()

    async def _open(self) -> FollowerParts | None:
        """Open the store, and become its writer; return the parts of a process that followed."""
        settings = self.settings
        # Loading a large store takes seconds; meanwhile callers are served.
        self.store = await asyncio.to_thread(
            open_store,
            settings.store.url,
            must_exist=settings.store.must_exist,
            commit_file=commit_file_of(settings.store),
        )
        self._closing.callback(self.store.close)
        self.store.audit.key = settings.audit.key.encode()
        self.bridge = Bridge(asyncio.get_running_loop(), partial(find_outcome, self.store))
        self.liveness.watch("event loop", self.bridge.call)
        self.answering = Answering(
            self.bridge,
            lambda: self.parts,
            serves_vms=lambda: bool(self.bound) and not self.settings.metadata.serve_outdated,
        )
        self.node_feed = NodeFeed(
            settings,
            self.bridge,
            token=lambda given: self.parts.control.token(given) if self.parts else None,
            clock=self.clock,
            certificates=self.certificates,
            closing=self._closing,
        )
        if settings.store.shared:
            await self._take_lease()
        elif not settings.store.url.endswith(":memory:"):
            watch = StoreWatch(self.store)
            self._closing.push_async_callback(asyncio.to_thread, watch.stop)
        return self.parts if isinstance(self.parts, FollowerParts) else None

    async def _build_active(self, followed: FollowerParts | None) -> ActiveParts:
        """Load the state, and build the parts that decide; VMs may be served from the followed."""
        state = await asyncio.to_thread(followed.control.stop) if followed else None
        plane = await asyncio.to_thread(
            ControlPlane,
            self.store,
            self.policy,
            self._new_guid,
            followed=state,
            missing_driver=self.configured.degraded.missing_driver,
        )
        self.hooks.prepare(plane)
        settings = self.settings
        if followed is None:
            self.configured.check_unused(plane.state, self.store.cursors.names)
        metadata = followed.metadata if followed else self._new_metadata()
        observers = await make_observers(settings, plane, clock=self.clock, drivers=self.drivers)
        feed = (followed.feed if followed else None) or self._new_feed()
        control = ControlLoop(
            plane,
            self.clock,
            drivers=driver_setup(
                settings.drivers, self.configured, planner=self.planner, observers=observers
            ),
            publisher=self.bridge,
            on_lost=self._end_superseded,
            on_went_back=self.answering.refuse_for_good,
            process=ProcessFacts(
                poll_of=metadata.service.poll_of,
                user_agents=metadata.user_agents,
                node_troubles=feed.troubles if feed else NodeTroubles,
                node_lags=feed.lags if feed else dict,
                certificates=lambda: expiries(self.settings.certificates),
                degraded=self._problem_sentences,
                lapsed=self._lease.lapsed,
                lease_token=self.lease_token,
                operator_url=self._operator_url,
            ),
        )
        workers = self._new_workers(feed)
        outbox = OutboxRunner(
            self.store,
            self.clock,
            self.configured,
            on_committed=control.on_committed,
            submit=control.submit,
        )
        return ActiveParts(plane, metadata, observers, feed, control, workers, outbox)

    async def _decide(self, followed: FollowerParts | None) -> tuple[str, ...]:
        """Build the parts that decide, and start them; return the metadata addresses."""
        parts = self.parts = await self._build_active(followed)
        plane, control, observers = parts.plane, parts.control, parts.observers
        settings, workers = self.settings, parts.workers
        self.bridge.connect(
            control,
            parts.metadata.service,
            far=parts.feed,
            wait_s=settings.lifecycle.show_timeout_s,
            on_polled=observers.metrics.polled if observers.metrics else None,
        )
        if workers is not None and self._tenure is not None:
            self._lease.report()
        elif workers is not None:
            proving = asyncio.ensure_future(workers.prove_while_alive(self.liveness))
            self._closing.callback(proving.cancel)
        self.metrics_address = await observers.attach(
            control,
            self._closing,
            figures=self._figures,
            lags=lambda: parts.feed.lags() if parts.feed else {},
        )
        # Stopped in the opposite order, so that VMs and approvals are answered until the end.
        self._closing.push_async_callback(asyncio.to_thread, control.stop)
        shared = followed is not None and workers is not None
        bound: tuple[str, ...] = ()
        newest = plane.taken_up()
        if newest is not None:  # VMs are answered from the followed state
            parts.metadata.service.apply(newest)
            bound = await self._listen(workers, shared=shared)
        # The first caller gets its document, not a 404: this process shows it when `recover`
        # returns. Nodes show it once they can connect, so nothing waits for them here.
        shown = await asyncio.to_thread(control.recover)
        if shown.done():
            shown.result()
        self.store.compare_clocks(self.clock.now_ms)
        if parts.feed is not None:
            await self._open_feed(parts.feed, followed.relay if followed else None)
        bound = bound or await self._listen(workers, shared=shared)
        if workers is not None and shared:
            workers.start_soon(bound, parts.metadata.leave_shared)
        if settings.listen.operator:
            await asyncio.to_thread(control.replica.begin, plane)
        control.start()
        observers.watch(lambda: self.outbox, self.certificates.expiries)
        if (feed := parts.feed) is not None:  # a node may know a commit without changes for it
            note, call = feed.record_commit, self.bridge.call
            control.on_committed.add(lambda each: call(partial(note, each.sequence)))
        degraded = self.configured.degraded
        degraded.look(plane.state)
        control.on_committed.add(degraded.look_at_commit)
        self.liveness.watch("deciding thread", self._ask_control)
        await parts.outbox.start()
        self._closing.push_async_callback(parts.outbox.stop)
        keep_history(self.store, settings, self.clock, closing=self._closing, record=control.record)
        return bound

    def _ask_control(self, reply: Callable[[], object]) -> None:
        """Call `reply` once the run loop has answered or ended."""
        self.control.read(lambda _: None).add_done_callback(lambda _: reply())

    def _figures(self) -> dict[str, dict[str, int]]:
        """Return the counters of this service's metadata processes, by name."""
        workers = self.workers.figures if self.workers else {}
        return {"service": self.metadata.figures(), **workers}

    async def adopt(self, settings: Settings) -> None:
        """Use changed settings, whose parts are configured already."""
        before, self.settings = self.settings, settings
        self.store.audit.key = settings.audit.key.encode()
        active = self.active
        if active is not None and settings.outbox != before.outbox:
            await active.outbox.restart()
        self._look_again()

    def _look_again(self) -> None:
        """Compare the state with reloaded parts, and look at work that waited for them."""
        active = self.active
        if active is None:  # a standby looks when it takes over
            return

        def look(view: StateView) -> None:
            self.configured.degraded.look(view.state)
            active.control.note(Proceed(tuple(view.state.operations)), "clock")

        active.control.read(look)

    def reload_soon(self) -> None:
        """Reload, and log an error on failure; on the event loop."""

        async def reload() -> None:
            try:
                await self.reload()
            except ForewarnError as error:
                log.error("%s %s Nothing was changed.", error, error.advice_text())  # noqa: TRY400 - the sentence says it

        self._task = asyncio.ensure_future(reload())

    def _problem_sentences(self) -> tuple[str, ...]:
        """Return a sentence about each part of the state and of history that cannot be used."""
        azure = self.operators.azure_problem
        own = (azure,) if azure else ()
        return (*self.configured.degraded.sentences, *own, *problems_of(self.store))

    def _new_feed(self) -> FeedServer | None:
        check = CommitChecks(self.store, self._note_went_back).check
        return self.node_feed.new_server(self.store.epoch, self.store.newest_commit, check)

    async def _open_feed(self, feed: FeedServer, relay: Relay | None) -> None:
        """Open the feed for metadata nodes; at a takeover, this process's nodes stay connected."""
        if relay is None:
            await self.node_feed.open(feed)
        else:
            await self.node_feed.lead(
                feed, relay, epoch=self.store.epoch, suspended=self.answering.outdated
            )

    def _new_workers(self, feed: FeedServer | None) -> Workers | None:
        if self.settings.listen.workers <= 0:
            return None
        assert feed is not None
        from forewarn_server.service.workers import Workers  # noqa: PLC0415 - most services start without

        return Workers(self.settings, feed)

    async def _listen(self, workers: Workers | None, *, shared: bool) -> tuple[str, ...]:
        """Open the metadata addresses; Unix sockets, which cannot be shared, stay here.

        At a takeover this process serves every address, `shared` with its workers, until these have
        started, so that VMs need not wait for them. Source: H-2.
        """
        addresses, alone = self.settings.listen.metadata, workers is None or shared
        own = [each for each in addresses if alone or each.startswith("unix:")]
        bound = await self.metadata.start(own, shared=int(shared))
        self._closing.push_async_callback(self.metadata.stop)
        if workers is not None:
            self._closing.push_async_callback(workers.stop)
            if not alone:
                bound += await workers.start([each for each in addresses if each not in own])
        return bound

    async def _take_lease(self) -> None:
        """Follow until this process holds the lease of the shared store, and renew the lease."""
        operators = self.operators
        tenure = self._tenure = Tenure(self.store, self.hooks.term_ms, self._operator_url)
        self._lease = await take_lease(
            tenure,
            self.store,
            self._closing,
            stand_by=partial(self._stand_by, tenure),
            holder=LeaseHolder(
                url=lambda: operators.url if operators.address else "",
                silent=self.liveness.silent,
                on_lost=self._end_superseded,
                on_lapse=self.answering.take_lapse,
                on_renewal=self._prove,
                on_return=self.compare_newest_commit,
            ),
        )

    def _operator_url(self) -> str:
        """Return the URL of the operator API once this process serves; until then, nothing."""
        return self.operators.url if self.bound is not None else ""

    def _prove(self, for_ms: int) -> None:
        """Permit the workers to answer VMs while the lease is held; on any thread."""
        workers = self.workers
        if workers is not None:
            workers.prove(for_ms)

    def lease_token(self) -> str:
        """Return the token of the lease while this process leads; otherwise an empty text."""
        leads = self._tenure is not None and self.bound is not None and not self._lease.lapsed()
        return self._tenure.holder if self._tenure and leads else ""

    def _note_went_back(self, error: StoreWentBack) -> None:
        """Stop deciding; a follower notices the mark in the store. On any thread."""
        if self.active is not None:
            self.active.control.note_went_back(error)

    def compare_newest_commit(self) -> None:
        """After an outage, check that the store has this process's last commit; on any thread.

        A process whose commit is lost stops deciding before it holds its lease again. Otherwise it
        would answer repeated approvals from memory until its next commit. Source: H-10.

        Raises:
            StoreUnavailable, StoreFull, StoreUncertain: the result is unknown.
        """
        try:
            self.store.check_commits({self.store.newest_commit(): MEMORY})
        except StoreWentBack as error:
            self._note_went_back(error)

    def _look_at_lease(self) -> None:
        """Look at the lease before anything is answered: this process may have been stopped."""
        if self._tenure is not None and self._lease.look():
            self.answering.show_lapse(lapsed=True)

    def _new_metadata(self) -> MetadataServer:
        return MetadataServer(
            self.settings.metadata,
            self.bridge,
            clock=self.clock,
            ids=self.ids,
            on_pause=self._look_at_lease,
            emulated=self.hooks.emulated(),
        )

    def _show_followed(self, change: DocumentChange | None, generation: int) -> None:
        """Send visible changes to nodes, and store them for VMs after a takeover."""
        epoch = self.store.epoch

        def show() -> None:
            if change is not None:
                self.metadata.service.apply(change)
            if self.feed is not None:
                self.feed.epoch = epoch
                if change is not None:
                    self.feed.apply(change)
                self.feed.record_commit(generation)

        self.bridge.call(show)

    async def _stand_by(self, tenure: Tenure, until: contextlib.AsyncExitStack) -> None:
        """Follow the active process, and forward operators' calls to it."""
        if self.settings.listen.metrics:
            (telemetry,) = await imported("forewarn_server.telemetry.endpoint")
            scraped = await telemetry.start_standby_metrics(self.settings.listen.metrics)
            until.push_async_callback(scraped.stop)
        (standby,) = await imported("forewarn_server.api.standby")
        active: ActiveProcess = standby.ActiveProcess(
            lambda: tenure.holder_url, lambda: tenure.holder, self.settings.operator.url_ca
        )
        parts = self.parts = await self._build_follower(active)
        follower = parts.control
        self._closing.push_async_callback(self.operators.stop)
        await self.operators.serve_followed(follower, active)
        if parts.feed is not None and parts.relay is not None:
            self.bridge.follow(parts.metadata.service, parts.relay)
            await self.node_feed.follow(parts.feed, follower, parts.relay)
        self._closing.callback(follower.stop_reads)
        until.push_async_callback(asyncio.to_thread, follower.stop)
        follower.start()
        self.hooks.on_standby(self.operators.address)

    async def _build_follower(self, active: ActiveProcess) -> FollowerParts:
        """Build the parts that follow the active process."""
        metadata, degraded = self._new_metadata(), self.configured.degraded
        follower = StateFollower(
            self.store,
            self.clock,
            self.policy,
            new_guid=self._new_guid,
            show=self._show_followed,
            process=ProcessFacts(
                poll_of=metadata.service.poll_of,
                degraded=lambda: degraded.sentences,
                lease_token=self.lease_token,
                operator_url=self._operator_url,
            ),
        )

        def look(committed: StepResult) -> None:
            if follower.view is not None:
                degraded.look(follower.view.state, committed.changes)

        follower.on_committed.add(look)
        if not (self.settings.feed.listen and self.settings.listen.operator):
            return FollowerParts(metadata, follower, None, None)
        (relays,) = await imported("forewarn_server.api.relay")
        relay: Relay = relays.Relay(active)
        return FollowerParts(metadata, follower, relay, self._new_feed())

    def _end_superseded(self, error: ForewarnError) -> None:
        """End the service after another process became the writer. Called on any thread."""
        self.failure = error
        self.bridge.call(self.ended.set)
