"""Recommendations that the emulator adds to documents. Source: Z-9.

A recommendation disturbs nothing, so the control plane has none. The emulator adds it to the
published document of a view, and raises the incarnation with each recommendation that comes or
goes, so that equal incarnations still have equal events. Used only on the event loop.
"""

from __future__ import annotations

from collections.abc import Callable

from forewarn_base.protocol.documents import Document, ScheduledEvent
from forewarn_base.protocol.versions import ADVISORY_STATUS
from forewarn_metadata.replication.messages import Publication

REBALANCE = "SpotRebalanceRecommendation"
DESCRIPTION = "The Spot VM is at elevated risk of eviction."


class Advisories:
    """The recommendations of each view."""

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        #: View -> its last publication by the control plane.
        self._published: dict[str, Publication] = {}
        #: View -> its recommendations, by event id.
        self._events: dict[str, dict[str, ScheduledEvent]] = {}
        #: View -> how far its incarnation is ahead of the control plane's.
        self._ahead: dict[str, int] = {}

    def shown(self, publication: Publication) -> Publication:
        """Return a publication of the control plane with the recommendations of its view."""
        self._published[publication.view] = publication
        ahead = self._ahead.get(publication.view, 0)
        if not ahead or not publication.enabled:
            return publication
        document = publication.document
        events = (*document.events, *self._events.get(publication.view, {}).values())
        return Publication(
            publication.view,
            enabled=True,
            document=Document(document.incarnation + ahead, events),
        )

    def others(self, view: str, event_ids: tuple[str, ...]) -> tuple[str, ...]:
        """Return the ids of other events than recommendations."""
        return tuple(each for each in event_ids if each not in self._events.get(view, {}))

    def begin(self, view: str, vm: str) -> tuple[str, Publication | None]:
        """Add a recommendation for a VM; return its id, and the changed publication of the view."""
        event = ScheduledEvent(
            event_id=self._new_id(),
            status=ADVISORY_STATUS,
            event_type=REBALANCE,
            resources=(vm,),
            description=DESCRIPTION,
        )
        self._events.setdefault(view, {})[event.event_id] = event
        return event.event_id, self._advance(view)

    def end(self, view: str, event_id: str) -> Publication | None:
        """Remove a recommendation; return the changed publication of the view."""
        self._events.get(view, {}).pop(event_id, None)
        return self._advance(view)

    def _advance(self, view: str) -> Publication | None:
        self._ahead[view] = self._ahead.get(view, 0) + 1
        publication = self._published.get(view)
        return self.shown(publication) if publication is not None else None
