"""Publishes changes, delays their effects until nodes show the changes, and retries failures.

The engine runs the effects. The publisher sends the changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from forewarn.control.plane import ControlPlane
from forewarn.core.step import FollowUp
from forewarn.errors import OurError
from forewarn.replication.messages import DocumentChange, PublishResult
from forewarn.values import replace, value

#: Delay before a failed publication is retried, in milliseconds; doubled each time up to the
#: maximum.
PUBLISH_AGAIN_MS, PUBLISH_AGAIN_MS_MAX = 1000, 30_000


class PublicationFailed(OurError):
    """A change could not be sent to the metadata nodes."""

    code = "publication-failed"
    message = "Documents could not be published: {reason}."
    advice = "Everything is published again until it succeeds; no work begins before."


class Publisher(Protocol):
    """Sends changes to metadata nodes, in the given order."""

    def publish(self, change: DocumentChange) -> Future[PublishResult]:
        """Send a change.

        The future is done once every node that serves affected VMs shows the change, or policy
        stops waiting for the others. The future has an exception if the change was not sent.
        """


@value
class PublicationEnded:
    """A publication has ended."""

    number: int
    result: PublishResult
    #: Why the publication was not sent; None if sent.
    error: BaseException | None = None


@dataclass(slots=True, eq=False)
class _Publication:
    #: Operations whose documents the publication changes.
    operations: tuple[int, ...]
    follow_ups: list[FollowUp]
    #: Whether to wait for every node that serves VMs of these operations.
    complete: bool = False
    #: Done once the publication has succeeded or failed.
    over: Future[None] = field(default_factory=Future)

    def absorb(self, other: _Publication) -> None:
        """Take over the operations and effects of another publication."""
        self.operations += other.operations
        self.follow_ups += other.follow_ups
        other.follow_ups = []


class Publishing:
    """Stores the effects of each publication; on the writer's thread only."""

    def __init__(
        self, publisher: Publisher, deliver: Callable[[PublicationEnded | FollowUp], None]
    ) -> None:
        """Start without a publication.

        `deliver` receives the end of each publication, on any thread, for `ended`, and effects
        without a publication.
        """
        self._publisher = publisher
        self._deliver = deliver
        self._count = 0
        self._pending: dict[int, _Publication] = {}
        #: Operation -> the last publication in progress about it.
        self._of_operation: dict[int, _Publication] = {}
        #: Effects of failed publications; None without any.
        self._failed: _Publication | None = None
        self._again_ms = 0
        self._tries = 0
        #: Announced operations that wait until VMs can see them, with the time of the next
        #: publication; None while one is in progress. Source: H-7.
        self._unseen: dict[int, None] = {}
        self._unseen_ms: int | None = None

    @property
    def failing(self) -> bool:
        """Whether the last publication failed, so that everything must be published again."""
        return self._failed is not None

    @property
    def next_ms(self) -> int | None:
        """When the next repeated publication is due, ms since the epoch UTC; None: never."""
        if self.failing:
            return self._again_ms
        return self._unseen_ms

    def publish(
        self, change: DocumentChange, operations: tuple[int, ...], follow_up: FollowUp
    ) -> Future[None]:
        """Publish a change that shows operations to VMs; its effects wait for nodes to show it.

        While everything must be published again, single changes are not sent, because nodes would
        lack the earlier changes. The future is done once the publication has succeeded or failed,
        on any thread. Source: M-1, M-4.
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
        """Publish everything now, with the effects of failed publications.

        The old time of the next retry is dropped, because the clock may have been set back.
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
        """Publish announced operations again until their VMs can see them. Source: H-7."""
        unseen = dict.fromkeys(operations)
        if unseen:
            self._unseen.update(unseen)
            self._unseen_ms = now_ms + PUBLISH_AGAIN_MS

    def after(self, follow_up: FollowUp) -> None:
        """Return the effects of a commit without document changes, once they are due.

        The effects are due when nodes show all earlier changes of the same operations, because a
        retry must not begin work that VMs do not see yet. Source: L-7.
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
            PublicationFailed: no effects may follow; everything will be published again.
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
            if number > ended.number:  # later publications depend on this one
                self._failed.absorb(later)
        raise PublicationFailed(reason=ended.error) from ended.error

    def _shown(self, follow_up: FollowUp) -> FollowUp:
        """Return the effects that are due; operations with a newer publication wait for its end."""
        failed, begin = self._failed, []
        for operation in follow_up.begin:
            later = self._of_operation.get(operation.number)
            if failed is not None and operation.number in failed.operations:
                later = failed
            if later is None:
                begin.append(operation)
            else:
                later.follow_ups.insert(0, FollowUp(begin=(operation,)))  # as the first effect
        return replace(self._without_unseen(follow_up), begin=tuple(begin))

    def _without_unseen(self, follow_up: FollowUp) -> FollowUp:
        """Leave out notices that start only once all VMs can see them. Source: H-7."""
        if not self._unseen:
            return follow_up
        announced = tuple([n for n in follow_up.announced if n not in self._unseen])
        return replace(follow_up, announced=announced)

    def turn(self, now_ms: int, plane: ControlPlane) -> None:
        """Publish again if due: everything after a failure, because later changes depend on it.

        Otherwise publish only the documents that VMs cannot see yet.

        Raises:
            ForewarnError: the store does not confirm now that this process is the writer. L-7.
        """
        if self._failed is not None:
            if self._again_ms <= now_ms:
                plane.store.confirm()
                self.publish_whole(plane.whole(), (), FollowUp())
        elif self._unseen_ms is not None and self._unseen_ms <= now_ms:
            change, numbers = plane.unshown(self._unseen)
            self._unseen, self._unseen_ms = dict.fromkeys(numbers), None
            follow_up = FollowUp(announced=numbers)
            if numbers:
                self._publish(change, _Publication(numbers, [follow_up], complete=True))

    def shift_times(self, step_ms: int) -> None:
        """Move the time of the next publication after a step of the service's clock."""
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
        """Pass the end of a publication to the writer's thread; called on any thread."""
        error = OurError() if handed.cancelled() else handed.exception()
        result = PublishResult() if error else handed.result()
        self._deliver(PublicationEnded(number, result, error))
        publication.over.set_result(None)
