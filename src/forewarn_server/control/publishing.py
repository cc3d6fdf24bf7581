"""Publishes changes, delays their effects until nodes show the changes, and retries failures.

The run loop runs the effects. The publisher sends the changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from typing import Protocol

from forewarn_base.errors import OurError
from forewarn_base.values import replace, value
from forewarn_core.fleet.step import StepResult
from forewarn_metadata.replication.messages import DocumentChange, PublishResult
from forewarn_server.control.plane import ControlPlane

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


class Publishing:
    """Stores the results of steps until their effects are due; on the writer's thread only.

    A result waits in the publication that shows it to VMs, or in a later one about the same
    operations.
    """

    def __init__(
        self, publisher: Publisher, deliver: Callable[[PublicationEnded | StepResult], None]
    ) -> None:
        """Start without a publication.

        `deliver` receives the end of each publication, on any thread, for `ended`, and effects
        without a publication.
        """
        self._publisher = publisher
        self._deliver = deliver
        self._count = 0
        #: Number of a publication in progress -> the results that wait for its end.
        self._pending: dict[int, list[StepResult]] = {}
        #: Those that show all documents of their operations, on every node.
        self._complete: set[int] = set()
        #: Operation -> the last publication in progress about it.
        self._of_operation: dict[int, int] = {}
        #: Results of failed publications; None without any.
        self._failed: list[StepResult] | None = None
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

    def publish(self, change: DocumentChange, result: StepResult) -> Future[None]:
        """Publish the change of a result, whose effects wait for nodes to show it.

        While everything must be published again, single changes are not sent, because nodes would
        lack the earlier changes. The future is done once the publication has succeeded or failed,
        on any thread. Source: M-1, M-4.
        """
        if self._failed is None:
            return self._publish(change, [result])
        self._failed.append(result)
        over: Future[None] = Future()
        over.set_result(None)
        return over

    def publish_whole(self, change: DocumentChange, result: StepResult) -> Future[None]:
        """Publish everything now, with the effects of failed publications.

        The old time of the next retry is dropped, because the clock may have been set back.
        """
        results, self._failed = [*(self._failed or ()), result], None
        return self._publish(change, results, complete=True)

    def show_again(self, operations: Iterable[int], now_ms: int) -> None:
        """Publish announced operations again until their VMs can see them. Source: H-7."""
        unseen = dict.fromkeys(operations)
        if unseen:
            self._unseen.update(unseen)
            self._unseen_ms = now_ms + PUBLISH_AGAIN_MS

    def after(self, result: StepResult) -> None:
        """Return the effects of a commit without document changes, once they are due.

        The effects are due when nodes show all earlier changes of the same operations, because a
        retry must not begin work that VMs do not see yet. Source: L-7.
        """
        result = self._without_unseen(result)
        if not result.has_effects:
            return
        waits = (self._waiting_with(number) for number in result.affected)
        others = self._failed
        if others is None:
            others = next((each for each in waits if each is not None), None)
        if others is not None:
            others.append(result)
        else:
            self._deliver(result)

    def ended(self, ended: PublicationEnded, now_ms: int) -> list[StepResult]:
        """Handle the end of a publication; return the results whose effects are due now.

        Raises:
            PublicationFailed: no effects may follow; everything will be published again.
        """
        complete = ended.number in self._complete
        results = self._taken(ended.number)
        if ended.error is None:
            self._tries = 0
            if complete:
                for each in results:
                    self._unseen = {n: None for n in self._unseen if n not in each.announced}
            return [self._due(each) for each in results]
        if self._failed is None:
            self._failed = []
            self._again_ms = now_ms + min(PUBLISH_AGAIN_MS << self._tries, PUBLISH_AGAIN_MS_MAX)
            self._tries = min(self._tries + 1, 10)
        self._failed += results
        for number in [each for each in self._pending if each > ended.number]:
            self._failed += self._taken(number)  # later publications depend on this one
        raise PublicationFailed(reason=ended.error) from ended.error

    def _taken(self, number: int) -> list[StepResult]:
        """Remove a publication, if it is known; return the results that wait for it."""
        results = self._pending.pop(number, [])
        self._complete.discard(number)
        for result in results:
            for operation in result.shown:
                if self._of_operation.get(operation) == number:
                    del self._of_operation[operation]
        return results

    def _waiting_with(self, operation: int) -> list[StepResult] | None:
        """Return the results that wait for the last publication about an operation; None: none."""
        return self._pending.get(self._of_operation.get(operation, 0))

    def _due(self, result: StepResult) -> StepResult:
        """Return the effects that are due; operations with a newer publication wait for its end."""
        failed, begin = self._failed, []
        for operation in result.begin:
            others = self._waiting_with(operation.number)
            if failed is not None and any(operation.number in each.shown for each in failed):
                others = failed
            if others is None:
                begin.append(operation)
            else:
                others.insert(0, StepResult(begin=(operation,)))  # as the first effect
        return replace(self._without_unseen(result), begin=tuple(begin))

    def _without_unseen(self, result: StepResult) -> StepResult:
        """Leave out notices that start only once all VMs can see them. Source: H-7."""
        if not self._unseen:
            return result
        announced = tuple([n for n in result.announced if n not in self._unseen])
        return replace(result, announced=announced)

    def turn(self, now_ms: int, plane: ControlPlane) -> None:
        """Publish again if due: everything after a failure, because later changes depend on it.

        Otherwise publish only the documents that VMs cannot see yet.

        Raises:
            ForewarnError: the store does not confirm now that this process is the writer. L-7.
        """
        if self._failed is not None:
            if self._again_ms <= now_ms:
                plane.store.confirm()
                self.publish_whole(plane.whole(), StepResult())
        elif self._unseen_ms is not None and self._unseen_ms <= now_ms:
            change, numbers = plane.unshown(self._unseen)
            self._unseen, self._unseen_ms = dict.fromkeys(numbers), None
            if numbers:
                result = StepResult(announced=numbers, shown=numbers)
                self._publish(change, [result], complete=True)

    def shift_times(self, step_ms: int) -> None:
        """Move the time of the next publication after a step of the service's clock."""
        self._again_ms += step_ms
        if self._unseen_ms is not None:
            self._unseen_ms += step_ms

    def _publish(
        self, change: DocumentChange, results: list[StepResult], *, complete: bool = False
    ) -> Future[None]:
        self._count += 1
        number = self._count
        self._pending[number] = results
        if complete:
            self._complete.add(number)
        for result in results:
            self._of_operation.update(dict.fromkeys(result.shown, number))
        try:
            handed = self._publisher.publish(change)
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody was shown anything
            handed = Future()
            handed.set_exception(error)
        over: Future[None] = Future()
        handed.add_done_callback(partial(self._over, number, over))
        return over

    def _over(self, number: int, over: Future[None], handed: Future[PublishResult]) -> None:
        """Pass the end of a publication to the writer's thread; called on any thread."""
        error = OurError() if handed.cancelled() else handed.exception()
        result = PublishResult() if error else handed.result()
        self._deliver(PublicationEnded(number, result, error))
        over.set_result(None)
