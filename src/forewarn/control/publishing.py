"""The publishing stage: effects wait until their change is shown; failed publications are retried.

Nothing is begun or decided here: the engine is handed what may follow. How a change travels is
the publisher's business.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol

from forewarn.core.step import FollowUp
from forewarn.errors import OurError
from forewarn.replication.messages import PublishResult
from forewarn.values import replace, value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from forewarn.replication.messages import DocumentChange

#: How long until a publication that failed is tried again, in milliseconds; doubled each time up
#: to the greatest.
PUBLISH_AGAIN_MS, PUBLISH_AGAIN_MS_MAX = 1000, 30_000


class PublicationFailed(OurError):
    """A change could not be handed to the metadata nodes."""

    code = "publication-failed"
    message = "Documents could not be published: {reason}."
    advice = "Everything is published again until it succeeds; nothing is begun before."


class Documents(Protocol):
    """Who knows what metadata nodes must show now."""

    def confirmed(self) -> DocumentChange:
        """Everything, once this process is known to be the writer still."""

    def unshown(self, numbers: Iterable[int]) -> tuple[DocumentChange, tuple[int, ...]]:
        """Return the documents of these operations that are not shown yet, and which those are."""


class Publisher(Protocol):
    """Who brings changes to metadata nodes, in the order they are given."""

    def publish(self, change: DocumentChange) -> Future[PublishResult]:
        """Hand a change on.

        The future is done once every node that serves its VMs shows it, or policy gives the rest
        up; it holds an exception if the change was not handed on.
        """


@value
class PublicationEnded:
    """A publication has ended."""

    number: int
    result: PublishResult
    #: Why it was not handed on; None if it was.
    error: BaseException | None = None


@dataclass(slots=True, eq=False)
class _Publication:
    #: Operations whose documents it changes.
    operations: tuple[int, ...]
    follow_ups: list[FollowUp]
    #: Whether every node that serves VMs of these operations is waited for.
    complete: bool = False
    #: Done once it has ended, well or not.
    over: Future[None] = field(default_factory=Future)

    def absorb(self, other: _Publication) -> None:
        """Take over the operations and follow-ups that wait for another publication."""
        self.operations += other.operations
        self.follow_ups += other.follow_ups
        other.follow_ups = []


class Publishing:
    """Holds the effects that wait for each publication; on the writer's thread only."""

    def __init__(
        self, publisher: Publisher, deliver: Callable[[PublicationEnded | FollowUp], None]
    ) -> None:
        """Publish nothing yet.

        Args:
            publisher: brings changes to the nodes.
            deliver: is given the end of each publication, on any thread, for `ended`; and what
                need not wait for one.
        """
        self._publisher = publisher
        self._deliver = deliver
        self._count = 0
        self._pending: dict[int, _Publication] = {}
        #: Operation -> the last publication under way that is about it.
        self._of_operation: dict[int, _Publication] = {}
        #: What waited for publications that have failed; None if none has.
        self._failed: _Publication | None = None
        self._again_ms = 0
        self._tries = 0
        #: Announced operations that wait until VMs are shown them, and when to publish them again;
        #: None while that is under way. Source: H-7.
        self._unseen: dict[int, None] = {}
        self._unseen_ms: int | None = None

    @property
    def failing(self) -> bool:
        """Whether the last publication failed, and everything is to be published again."""
        return self._failed is not None

    @property
    def next_ms(self) -> int | None:
        """When to publish something again, ms since the epoch UTC; None if nothing."""
        if self.failing:
            return self._again_ms
        return self._unseen_ms

    def publish(
        self, change: DocumentChange, operations: tuple[int, ...], follow_up: FollowUp
    ) -> Future[None]:
        """Publish a change, and return its effects once it is shown.

        While everything is to be published again, a change alone is not: nodes would lack what it
        rests on, and who is concerned would be judged by that. Source: M-1, M-4.

        Args:
            change: what nodes must show.
            operations: those that it shows to VMs.
            follow_up: what waits for it.

        Returns:
            done once that has succeeded or failed, on whatever thread.
        """
        publication = _Publication(operations, [follow_up])
        if self._failed is None:
            self._publish(change, publication)
        else:
            self._failed.absorb(publication)
            publication.over.set_result(None)
        return publication.over

    def publish_whole(
        self, change: DocumentChange, operations: tuple[int, ...], follow_up: FollowUp
    ) -> Future[None]:
        """Publish everything now, also what waits for publications that have failed.

        The clock may have been put back since they did: the time to publish them again is void.
        """
        follow_ups = [follow_up]
        if self._failed is not None:
            failed, self._failed = self._failed, None
            operations, follow_ups = (*failed.operations, *operations), failed.follow_ups
            follow_ups.append(follow_up)
        publication = _Publication(operations, follow_ups, complete=True)
        self._publish(change, publication)
        return publication.over

    def show_again(self, operations: Iterable[int], now_ms: int) -> None:
        """Publish announced operations again soon, until their VMs are shown them. Source: H-7."""
        unseen = dict.fromkeys(operations)
        if unseen:
            self._unseen.update(unseen)
            self._unseen_ms = now_ms + PUBLISH_AGAIN_MS

    def after(self, follow_up: FollowUp) -> None:
        """Return the effects of a commit that changed no document, once its time has come.

        That is when all earlier changes about the same operations are shown: a retry must not
        begin what its VMs do not see yet. Source: L-7.
        """
        follow_up = self._without_unseen(follow_up)
        if not follow_up:
            return
        if self._failed is not None:
            self._failed.follow_ups.append(follow_up)
            return
        waits = (self._of_operation.get(number) for number in follow_up.operations)
        last = next((each for each in waits if each is not None), None)
        if last is not None:
            last.follow_ups.append(follow_up)
        else:
            self._deliver(follow_up)

    def ended(self, ended: PublicationEnded, now_ms: int) -> list[FollowUp]:
        """Handle the end of a publication; return the effects that are due now.

        Raises:
            PublicationFailed: nothing may, and everything will be published again.
        """
        publication = self._pending.pop(ended.number)
        for operation in publication.operations:
            if self._of_operation.get(operation) is publication:
                del self._of_operation[operation]
        if ended.error is None:
            self._tries = 0
            if publication.complete:
                for each in publication.follow_ups:
                    self._unseen = {n: None for n in self._unseen if n not in each.announced}
            return [self._shown(each) for each in publication.follow_ups]
        if self._failed is None:
            self._failed = publication
            self._again_ms = now_ms + min(PUBLISH_AGAIN_MS << self._tries, PUBLISH_AGAIN_MS_MAX)
            self._tries = min(self._tries + 1, 10)
        else:
            self._failed.absorb(publication)
        for number, later in self._pending.items():
            if number > ended.number:  # it may be shown, and rests on this one
                self._failed.absorb(later)
        raise PublicationFailed(reason=ended.error) from ended.error

    def _shown(self, follow_up: FollowUp) -> FollowUp:
        """Return what may be done now; what has changed since is begun once that is shown."""
        failed, begin = self._failed, []
        for operation in follow_up.begin:
            later = self._of_operation.get(operation.number)
            if failed is not None and operation.number in failed.operations:
                later = failed
            if later is None:
                begin.append(operation)
            else:
                later.follow_ups.insert(0, FollowUp(begin=(operation,)))  # before it ends
        return replace(self._without_unseen(follow_up), begin=tuple(begin))

    def _without_unseen(self, follow_up: FollowUp) -> FollowUp:
        """Leave out notices that count only once all VMs are shown them. Source: H-7."""
        if not self._unseen:
            return follow_up
        announced = tuple([n for n in follow_up.announced if n not in self._unseen])
        return replace(follow_up, announced=announced)

    def turn(self, now_ms: int, documents: Documents) -> None:
        """Publish again if that is due: everything, as what came since may rest on what failed.

        Else what VMs are not shown yet.
        """
        if self._failed is not None:
            if self._again_ms <= now_ms:
                self.publish_whole(documents.confirmed(), (), FollowUp())
        elif self._unseen_ms is not None and self._unseen_ms <= now_ms:
            change, numbers = documents.unshown(self._unseen)
            self._unseen, self._unseen_ms = dict.fromkeys(numbers), None
            follow_up = FollowUp(announced=numbers)
            if numbers:
                self._publish(change, _Publication(numbers, [follow_up], complete=True))

    def put_by(self, step_ms: int) -> None:
        """Publish again when that was due, where the service's clock was put by so much."""
        self._again_ms += step_ms
        if self._unseen_ms is not None:
            self._unseen_ms += step_ms

    def _publish(self, change: DocumentChange, publication: _Publication) -> None:
        self._count += 1
        number = self._count
        self._pending[number] = publication
        for operation in publication.operations:
            self._of_operation[operation] = publication
        try:
            handed = self._publisher.publish(change)
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody was shown anything
            handed = Future()
            handed.set_exception(error)
        handed.add_done_callback(partial(self._over, number, publication))

    def _over(self, number: int, publication: _Publication, handed: Future[PublishResult]) -> None:
        """Hand the end of a publication to the writer's thread; called on any."""
        error = OurError() if handed.cancelled() else handed.exception()
        result = PublishResult() if error else handed.result()
        self._deliver(PublicationEnded(number, result, error))
        publication.over.set_result(None)
