"""The whole service in one process, with settings, store, drivers, control and metadata.

This module only connects parts in order. The metadata addresses open before the operator API is
imported, because VMs come first.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from forewarn.access.roles import Permission
from forewarn.access.tokens import proved
from forewarn.api.listener import FEED, taken
from forewarn.clock import SystemClock
from forewarn.control.degraded import DegradedParts
from forewarn.control.driver_calls import CallLimits, DriverSetup, DriverUnknown
from forewarn.control.engine import ControlEngine
from forewarn.control.history_keeper import HistoryKeeper
from forewarn.control.plane import ControlPlane
from forewarn.control.planner_host import PlannerProcess
from forewarn.control.readable import ProcessFacts
from forewarn.control.service_state import Liveness
from forewarn.control.standby import (
    RENEWALS,
    TERM_MS,
    LeaseKeeper,
    StateFollower,
    become_writer,
    leave,
)
from forewarn.core.outcomes import EventOutcome
from forewarn.core.stimulus import Proceed
from forewarn.drivers.registry import (
    check_installed,
    make_drivers,
    scheduling,
    unscheduled,
)
from forewarn.errors import ForewarnError, PeerError
from forewarn.metadata.fault import Outdated
from forewarn.metadata.responder import BUSY
from forewarn.metadata.server import MetadataServer
from forewarn.replication.messages import NodeTroubles, RequestAnswer
from forewarn.service.address_probes import check_addresses
from forewarn.service.bridge import Bridge
from forewarn.service.commit_checks import CommitChecks
from forewarn.service.credentials import ServedCertificates, connect_feed, login_of
from forewarn.service.hooks import NO_HOOKS, ServiceHooks
from forewarn.service.observers import make_observers
from forewarn.service.operators import OperatorApi, imported
from forewarn.service.service_files import commit_file_of, retention_of
from forewarn.service.settings_check import policy_of
from forewarn.service.store_watch import StoreWatch
from forewarn.store import open_store
from forewarn.store.lease import Tenure
from forewarn.store.past_check import PastCheck
from forewarn.store.processes import SignsOfLife
from forewarn.values import replace, value

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from forewarn.api.relay import Relay
    from forewarn.clock import Clock
    from forewarn.control.gate_checks import Gate
    from forewarn.control.plane import Committed, StateView
    from forewarn.control.readable import ReadableControl
    from forewarn.core.state import State
    from forewarn.drivers import Driver
    from forewarn.ids import Ids
    from forewarn.outbox.delivery import Destination
    from forewarn.outbox.outbox import Outbox
    from forewarn.replication.messages import DocumentChange
    from forewarn.replication.server import FeedServer
    from forewarn.service.observers import Observers
    from forewarn.service.workers import Workers
    from forewarn.settings import Settings
    from forewarn.store.errors import StoreWentBack

log = logging.getLogger("forewarn")

#: Interval of a follower's checks whether it may serve the feed, in seconds.
FEED_LOOK_S = 0.2
#: Interval of attempts to start the outbox while the store cannot be written, in seconds.
OUTBOX_AGAIN_S = 5.0


@value
class BoundAddresses:
    """The actual addresses of the service."""

    metadata: tuple[str, ...]
    operator: str
    #: URL of Azure Resource Manager, and its certificate file; empty: not served.
    azure: str = ""
    azure_certificate: str = ""


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
        tables = {each.name: each.values for each in settings.drivers.tables}
        self.drivers: dict[str, Driver] = make_drivers(tables, settings.store.url)
        self.gates = self.new_gates(settings)
        self.destinations = self.new_destinations(settings)
        if settings.drivers.default not in self.drivers:
            known = ", ".join(self.drivers)
            raise DriverUnknown(name=settings.drivers.default, known=known)
        #: Names what this process cannot use of the state.
        self.degraded = DegradedParts(
            self.drivers, settings.drivers.default, gates=self.gates, unsent=self._unsent
        )
        self.policy = replace(
            policy_of(settings.lifecycle),
            scheduling_drivers=scheduling(self.drivers, settings.drivers.default),
            unscheduled_drivers=unscheduled(self.drivers),
        )
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
        #: The processes that share the metadata addresses; None without workers.
        self.workers: Workers | None = None
        #: The feed for metadata nodes in other processes; None without nodes.
        self.feed: FeedServer | None = None
        #: Address for nodes on other machines; empty: none.
        self.feed_address = ""
        #: Address of the metrics; empty: none.
        self.metrics_address = ""
        #: Delivers transitions; None without a destination.
        self.outbox: Outbox | None = None
        #: Makes the plans of maintenances, in processes if large.
        self.planner = PlannerProcess()
        self._task: asyncio.Future[None] | None = None
        #: The next attempt to start the outbox; None: it runs, or there is no destination.
        self._outbox_due: asyncio.TimerHandle | None = None
        #: The APIs for operators.
        self.operators = OperatorApi(self)
        #: The certificates in use.
        self.certificates = ServedCertificates()
        #: Whether the event loop and the deciding thread respond.
        self.liveness = Liveness(SystemClock().elapsed_ms)
        self._lapsed: Callable[[], bool] = lambda: False
        #: Whether VMs have seen documents that the store has lost.
        self._outdated = False
        self._announce: Callable[[], None] = lambda: None
        self._look: Callable[[], bool] = lambda: False
        self._report_lease: Callable[[], None] = lambda: None
        #: Follows the state while another process is active.
        self._follower: StateFollower | None = None
        #: Forwards requests of this process's metadata nodes to the active process.
        self._relay: Relay | None = None
        #: Closes the feed of this process while its state may be outdated.
        self._following: asyncio.Task[None] | None = None
        self._tenure: Tenure | None = None
        self._closing = contextlib.AsyncExitStack()

    async def start(self) -> BoundAddresses:
        """Check the addresses, open the store, run the control loop, listen.

        Raises:
            ForewarnError: an address, the store or a setting is unusable; everything is closed
            again.
        """
        try:
            await check_addresses(self.settings)
            metadata = await self._start_planes()
            self.hooks.on_serving()
            self._closing.push_async_callback(self.operators.stop)
            await self.operators.serve(self.control)
            if self._follower is not None:
                await asyncio.to_thread(self._follower.stop_reads)
            await self.operators.serve_azure()
        except BaseException:
            await self.stop()
            raise
        operators = self.operators
        self.bound = BoundAddresses(
            metadata, operators.address, operators.azure, operators.azure_certificate
        )
        self._announce()
        return self.bound

    async def stop(self) -> None:
        """Stop listening, finish running calls, close the store; do not wait for a plan."""
        self.planner.stop()
        await self._closing.aclose()

    async def _start_planes(self) -> tuple[str, ...]:
        settings = self.settings
        bridge = self.bridge = Bridge(asyncio.get_running_loop(), self._find_outcome)
        self.liveness.watch("event loop", bridge.call)
        # Loading a large store takes seconds; meanwhile callers are served.
        self.store = await asyncio.to_thread(
            open_store,
            settings.store.url,
            must_exist=settings.store.must_exist,
            commit_file=commit_file_of(settings.store),
        )
        self._closing.callback(self.store.close)
        self.store.audit.key = settings.audit.key.encode()
        if settings.store.shared:
            await self._take_lease()
        elif not settings.store.url.endswith(":memory:"):
            watch = StoreWatch(self.store)
            self._closing.push_async_callback(asyncio.to_thread, watch.stop)
        followed = await asyncio.to_thread(self._follower.stop) if self._follower else None
        plane = await asyncio.to_thread(
            ControlPlane,
            self.store,
            self.policy,
            self._new_guid,
            followed=followed,
            missing_driver=self.degraded.missing_driver,
        )
        self.hooks.prepare(plane)
        if self._follower is None:
            self._check_unused(plane.state)
            self.metadata = self._new_metadata()
        observers = await make_observers(settings, plane, clock=self.clock, drivers=self.drivers)
        self.feed = self.feed or self._new_feed(bridge)
        self.control = self._new_control(plane, bridge, observers)
        workers = self._new_workers(self.feed)
        bridge.connect(
            self.control,
            self.metadata.service,
            far=self.feed,
            wait_s=settings.lifecycle.show_timeout_s,
            on_polled=observers.polled,
        )
        self.metrics_address = await observers.attach(
            self.control,
            self._closing,
            figures=self._figures,
            lags=lambda: self.feed.lags() if self.feed else {},
        )
        # Stopped in the opposite order, so that VMs and approvals are answered until the end.
        self._closing.push_async_callback(asyncio.to_thread, self.control.stop)
        bound: tuple[str, ...] = ()
        newest = plane.taken_up()
        if newest is not None:  # VMs are answered from the followed state
            self.metadata.service.apply(newest)
            bound = await self._listen(settings.listen.metadata, workers)
        # The first caller gets its document, not a 404: this process shows it when `recover`
        # returns. Nodes show it once they can connect, so nothing waits for them here.
        shown = await asyncio.to_thread(self.control.recover)
        if shown.done():
            shown.result()
        self.store.compare_clocks(self.clock.now_ms)
        await self._open_feed()
        bound = bound or await self._listen(settings.listen.metadata, workers)
        if workers is not None and self._follower is not None:
            workers.start_soon(bound, self.metadata.leave_shared)
        if settings.listen.operator:
            await asyncio.to_thread(self.control.replica.begin, plane)
        self.control.start()
        observers.watch(lambda: self.outbox, self.certificates.expiries, self._carrier)
        self.control.on_committed.add(lambda _: self._outbox_grew())
        self.control.on_committed.add(lambda each: self.degraded.look(plane.state, each.changes))
        self.degraded.look(plane.state)
        self.liveness.watch("deciding thread", self._ask_control)
        if self.destinations:
            await self._start_outbox()
        self._closing.push_async_callback(self._stop_outbox)
        self._keep_history()
        return bound

    def _new_control(
        self, plane: ControlPlane, bridge: Bridge, observers: Observers
    ) -> ControlEngine:
        """Return the engine of the control plane, not started yet."""
        drivers = self.settings.drivers
        return ControlEngine(
            plane,
            self.clock,
            drivers=DriverSetup(
                self.drivers,
                drivers.default,
                CallLimits(
                    timeout_ms=int(drivers.call_timeout_s * 1000),
                    max_concurrent=drivers.max_concurrent_calls,
                    unanswered_ms=int(drivers.unanswered_timeout_s * 1000),
                ),
                gates=self.gates,
                planner=self.planner,
                observe=observers.observe_call,
            ),
            publisher=bridge,
            on_lost=self._lost,
            on_went_back=partial(bridge.call, self._refuse_outdated),
            process=ProcessFacts(
                poll_of=self.metadata.service.poll_of,
                user_agents=self.metadata.user_agents,
                node_troubles=self.feed.troubles if self.feed else NodeTroubles,
                degraded=self._degraded,
                lapsed=self._lapsed,
                lease_token=self.lease_token,
                operator_url=self._operator_url,
            ),
        )

    def _ask_control(self, answer: Callable[[], object]) -> None:
        """Call `answer` once the run loop has answered or ended."""
        self.control.read(lambda _: None).add_done_callback(lambda _: answer())

    def _find_outcome(self, vm: str, event_id: str) -> RequestAnswer:
        """Return the outcome of an event for a VM, as JSON; on a thread. Source: X-1."""
        event = self.store.event(event_id)
        operation = self.store.operation(event.operation) if event else None
        if event is None or operation is None or vm not in event.resources:
            return RequestAnswer(accepted=False)
        outcome = EventOutcome(event, operation).form()
        return RequestAnswer(accepted=True, outcome=json.dumps(outcome))

    def _figures(self) -> dict[str, dict[str, int]]:
        """Return the counters of this service's metadata processes, by name."""
        workers = self.workers.figures if self.workers else {}
        return {"service": self.metadata.figures(), **workers}

    @staticmethod
    def new_gates(settings: Settings) -> dict[str, Gate]:
        """Return the gates of the settings; without gates nothing is imported."""
        if not settings.gates.tables:
            return {}
        from forewarn.control.gate_checks import make_gates  # noqa: PLC0415

        return make_gates({each.name: each.values for each in settings.gates.tables})

    def new_destinations(self, settings: Settings) -> tuple[Destination, ...]:
        """Return the destinations of the settings."""
        if not settings.outbox.tables:
            return ()
        from forewarn.outbox.destinations import make_destinations  # noqa: PLC0415 - if wanted

        return make_destinations({each.name: each.values for each in settings.outbox.tables})

    def _unsent(self) -> dict[str, str]:
        """Return the destinations whose package is not installed, with the reason."""
        absent = {each.name: getattr(each.sink, "absent", "") for each in self.destinations}
        return {name: reason for name, reason in absent.items() if reason}

    @staticmethod
    def check_destinations(
        destinations: Sequence[Destination], known: Collection[str] = ()
    ) -> None:
        """Refuse destinations whose package is not installed, except those in `known`.

        Raises:
            DestinationInvalid: a package is missing.
        """
        if destinations:
            from forewarn.outbox.destinations import check_installed  # noqa: PLC0415 - loaded by now

            check_installed(each for each in destinations if each.name not in known)

    def _check_unused(self, state: State) -> None:
        """Refuse drivers and destinations that are not installed and were never in use. See L-12.

        Raises:
            DriverKindUnknown, DriverUnusable, DestinationInvalid: it is not installed.
        """
        default = self.settings.drivers.default
        used = {each.driver or default for each in state.topology.hosts.values()}
        check_installed(each for name, each in self.drivers.items() if name not in used)
        known = self.store.cursors.names() if self._unsent() else ()
        self.check_destinations(self.destinations, known)

    def look_again(self) -> None:
        """Compare the state with reloaded parts, and look at work that waited for them."""
        control: ControlEngine | None = getattr(self, "control", None)
        if control is None:  # a standby looks when it takes over
            return

        def look(view: StateView) -> None:
            self.degraded.look(view.state)
            control.note(Proceed(tuple(view.state.operations)), "clock")

        control.read(look)

    def reload_soon(self) -> None:
        """Reload, and log an error on failure; on the event loop."""

        async def reload() -> None:
            try:
                await self.reload()
            except ForewarnError as error:
                log.error("%s %s Nothing was changed.", error, error.advice_text())  # noqa: TRY400 - the sentence says it

        self._task = asyncio.ensure_future(reload())

    async def restart_outbox(self) -> None:
        """Restart delivery; each current destination continues at its cursor."""
        before, self.outbox = self.outbox, None
        if before is not None:
            await asyncio.to_thread(before.stop)
        if self.destinations:
            await self._start_outbox()

    def _outbox_grew(self) -> None:
        if self.outbox is not None:
            self.outbox.grew()

    async def _stop_outbox(self) -> None:
        if self._outbox_due is not None:
            self._outbox_due.cancel()
        if self.outbox is not None:
            await asyncio.to_thread(self.outbox.stop)

    async def _start_outbox(self) -> None:
        """Start delivering transitions, later if the store cannot be written now."""
        (module,) = await imported("forewarn.outbox.outbox")
        try:
            outbox: Outbox = await asyncio.to_thread(
                module.Outbox, self.store, self.destinations, self.clock
            )
        except PeerError as error:
            text = "the outbox starts later: %s"
            log.warning(text, error, extra={"action": "outbox.waits"})
            self._outbox_due = asyncio.get_running_loop().call_later(
                OUTBOX_AGAIN_S, self._start_outbox_again
            )
            return
        self.outbox = outbox
        outbox.start()

    def _start_outbox_again(self) -> None:
        self._task = asyncio.ensure_future(self._start_outbox())

    def _keep_history(self) -> None:
        """Enforce the limits of the past, and check it, in the background."""
        settings = self.settings
        exports = settings.history.export and not settings.store.url.endswith(":memory:")
        keeper = HistoryKeeper(
            self.store,
            retention_of(settings),
            self.clock,
            record=self.control.record,
            exports=exports,
        )
        keeper.start()
        self._closing.push_async_callback(asyncio.to_thread, keeper.stop)
        check = PastCheck(self.store, self.clock)
        self._closing.push_async_callback(asyncio.to_thread, check.stop)

    def _degraded(self) -> tuple[str, ...]:
        """Return the parts of the state that cannot be used, and problems of history."""
        store = self.store
        damage = store.past_progress.damage if store.past_progress else ""
        return (*self.degraded.sentences, *(text for text in (store.past_excess, damage) if text))

    def _new_feed(self, bridge: Bridge) -> FeedServer | None:
        """Return the feed for metadata nodes in other processes; None if no setting needs it."""
        feed = self.settings.feed
        has_nodes = bool(feed.listen or feed.nats)
        if not has_nodes and self.settings.listen.workers <= 0:
            return None
        from forewarn.replication.access import NodeAccess  # noqa: PLC0415 - most services have none
        from forewarn.replication.server import FeedServer  # noqa: PLC0415

        access = NodeAccess(feed.hosts, self._prove_node) if has_nodes else None
        server = FeedServer(bridge, epoch=self.store.epoch, access=access)
        server.newest_commit = self.store.newest_commit
        server.check_commit = CommitChecks(self.store, self._note_went_back).check
        self._closing.push_async_callback(server.stop)
        return server

    def _carrier(self) -> dict[str, int]:
        """Return the counters of the feed over NATS; empty without NATS."""
        figures = self.feed.carrier if self.feed is not None else None
        return figures.named() if figures is not None else {}

    def _prove_node(self, name: str, given: str) -> bool:
        """Return whether a token belongs to a node and permits following the feed."""
        known: ReadableControl | None = getattr(self, "control", self._follower)
        token = proved(given, known.token, self.clock.now_ms()) if known else None
        if token is None or token.principal != name:
            return False
        return token.bearer.owners_for(Permission.FOLLOW) is None

    def _new_workers(self, feed: FeedServer | None) -> Workers | None:
        if self.settings.listen.workers <= 0:
            return None
        assert feed is not None
        from forewarn.service.workers import Workers  # noqa: PLC0415 - most services start without

        workers = self.workers = Workers(self.settings, feed)
        if self._tenure is not None:
            self._report_lease()
        else:
            proving = asyncio.ensure_future(self._prove_alive())
            self._closing.callback(proving.cancel)
        return workers

    async def _open_feed(self) -> None:
        """Open the feed for metadata nodes; at a takeover, this process's nodes stay connected."""
        feed, settings = self.feed, self.settings.feed
        if feed is None:
            return
        if self._relay is not None and self._following is not None:
            self._following.cancel()
            feed.epoch = self.store.epoch
            feed.suspend(suspended=self._outdated)
            await self._relay.stop(self.bridge)
        elif settings.listen:
            self.feed_address = await self._start_feed(feed)
        if settings.nats:
            login_of(settings)  # an unusable file ends the start
            feed.start_broker(partial(connect_feed, settings, count()))

    async def _start_feed(self, server: FeedServer) -> str:
        feed = self.settings.feed
        address, tls = feed.listen, self.certificates.load("feed", feed)
        try:
            return await server.start_network(address, tls)
        except OSError as error:
            raise taken(address, FEED, error) from error

    async def _listen(self, addresses: Sequence[str], workers: Workers | None) -> tuple[str, ...]:
        """Open the metadata addresses; Unix sockets, which cannot be shared, stay here.

        At a takeover this process serves every address until its workers have started, so that VMs
        need not wait for them. Source: H-2.
        """
        alone = workers is None or self._follower is not None
        own = [each for each in addresses if alone or each.startswith("unix:")]
        bound = await self.metadata.start(own, shared=int(alone and workers is not None))
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
        signs = SignsOfLife(
            self.store, tenure.token, lambda: operators.url if operators.address else ""
        )
        self._closing.push_async_callback(asyncio.to_thread, signs.stop)
        # Even a process that is stopped while it acquires the lease releases it.
        self._closing.push_async_callback(leave, tenure)
        # A separate clock, because a term is elapsed time.
        clock = SystemClock()
        async with contextlib.AsyncExitStack() as standing_by:
            await become_writer(tenure, clock, partial(self._stand_by, standing_by, tenure))
        keeper = LeaseKeeper(
            tenure,
            clock,
            self._lost,
            silent=self.liveness.silent,
            on_lapse=self._take_lapse,
            on_renewal=self._prove,
        )
        self._lapsed, self._announce, self._look = keeper.lapsed, keeper.renew, keeper.look
        self._report_lease = keeper.report
        self._closing.push_async_callback(asyncio.to_thread, keeper.stop)

    def _operator_url(self) -> str:
        """Return the URL of the operator API once this process serves; until then, nothing."""
        return self.operators.url if self.bound is not None else ""

    def _prove(self, for_ms: int) -> None:
        """Permit the workers to answer VMs while the lease is held; on any thread."""
        workers = self.workers
        if workers is not None:
            workers.prove(for_ms)

    async def _prove_alive(self) -> None:
        """Permit the workers to answer VMs while this process responds; its store has no lease."""
        while True:
            if not self.liveness.silent():
                self._prove(TERM_MS)
            await asyncio.sleep(TERM_MS / RENEWALS / 1000)

    def lease_token(self) -> str:
        """Return the token of the lease while this process leads; otherwise an empty text."""
        leads = self._tenure is not None and self.bound is not None and not self._lapsed()
        return self._tenure.holder if self._tenure and leads else ""

    def _take_lapse(self, lapsed: bool) -> None:  # noqa: FBT001 - as the keeper calls it
        self.bridge.call(partial(self._show_lapse, lapsed=lapsed))

    def _show_lapse(self, *, lapsed: bool) -> None:
        """Report no freshness while another process may hold the lease. Source: H-3."""
        if self._outdated:
            return
        if self.feed is not None:
            self.feed.suspend(suspended=lapsed)
        if self.bound is not None and not self.settings.metadata.serve_outdated:
            self.metadata.service.set_fault(Outdated(BUSY) if lapsed else None)

    def _note_went_back(self, error: StoreWentBack) -> None:
        """Stop deciding; a follower notices the mark in the store. On any thread."""
        control: ControlEngine | None = getattr(self, "control", None)
        if control is not None:
            control.note_went_back(error)

    def _refuse_outdated(self) -> None:
        """Answer no VM and no node any more: they have seen newer documents. Source: H-10."""
        self._outdated = True
        self.metadata.service.set_fault(Outdated(BUSY))
        if self.feed is not None:
            self.feed.suspend(suspended=True)

    def _wake(self) -> None:
        """Look at the lease before anything is answered: this process may have been stopped."""
        if self._look():
            self._show_lapse(lapsed=True)

    def _new_metadata(self) -> MetadataServer:
        return MetadataServer(
            self.settings.metadata,
            self.bridge,
            clock=self.clock,
            ids=self.ids,
            on_pause=self._wake,
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

    def _look_at_followed(self, follower: StateFollower, committed: Committed) -> None:
        if follower.view is not None:
            self.degraded.look(follower.view.state, committed.changes)

    async def _follow_feed(self, follower: StateFollower, tenure: Tenure) -> None:
        """Serve metadata nodes from the followed state. Source: H-4."""
        (relays,) = await imported("forewarn.api.relay")
        relay: Relay = relays.Relay(
            lambda: tenure.holder_url, lambda: tenure.holder, self.settings.operator.url_ca
        )
        self._relay = relay
        self.bridge.follow(self.metadata.service, relay)
        feed = self.feed = self._new_feed(self.bridge)
        assert feed is not None
        feed.suspend(suspended=True)
        self.feed_address = await self._start_feed(feed)
        relay.start(feed)
        self._closing.push_async_callback(relay.stop)

        async def keep() -> None:
            closed = True
            while True:
                may_be_old = follower.lapsed() or relay.silent
                if may_be_old is not closed:
                    closed = may_be_old
                    feed.suspend(suspended=closed)
                await asyncio.sleep(FEED_LOOK_S)

        task = self._following = asyncio.ensure_future(keep())
        self._closing.callback(task.cancel)

    async def _stand_by(self, until: contextlib.AsyncExitStack, tenure: Tenure) -> None:
        """Follow the active process, and forward operators' calls to it."""
        if self.settings.listen.metrics:
            (telemetry,) = await imported("forewarn.telemetry.endpoint")
            scraped = await telemetry.start_standby_metrics(self.settings.listen.metrics)
            until.push_async_callback(scraped.stop)
        self.metadata = self._new_metadata()
        follower = self._follower = StateFollower(
            self.store,
            self.clock,
            self.policy,
            new_guid=self._new_guid,
            show=self._show_followed,
            process=ProcessFacts(
                poll_of=self.metadata.service.poll_of,
                degraded=lambda: self.degraded.sentences,
                lease_token=self.lease_token,
            ),
        )
        follower.on_committed.add(partial(self._look_at_followed, follower))
        self._closing.push_async_callback(self.operators.stop)
        await self.operators.serve_followed(
            follower, lambda: tenure.holder_url, lambda: tenure.holder
        )
        if self.settings.feed.listen and self.settings.listen.operator:
            await self._follow_feed(follower, tenure)
        self._closing.callback(follower.stop_reads)
        until.push_async_callback(asyncio.to_thread, follower.stop)
        follower.start()
        self.hooks.on_standby(self.operators.address)

    def _lost(self, error: ForewarnError) -> None:
        """End the service after another process became the writer. Called on any thread."""
        self.failure = error
        self.bridge.call(self.ended.set)
