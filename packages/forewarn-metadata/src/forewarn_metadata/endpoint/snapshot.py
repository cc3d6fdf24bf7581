"""Published and encoded documents, one view for each group (or VM, S-3).

Everything runs on the event loop's thread.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple, Protocol

from forewarn_base.protocol.documents import Document, render_document
from forewarn_metadata.endpoint.http.response import head
from forewarn_metadata.replication.messages import Publication

#: Maximum number of cached requests of one view: versions times clients, with a margin.
READY_MAX = 32


class Answer(NamedTuple):
    """An encoded answer without its date."""

    #: Bytes before the date.
    head: bytes
    body: bytes
    #: Whether the connection closes after the answer.
    close: bool
    #: Whether the answer uses HTTP/1.0.
    old: bool
    #: Whether the answer may be cached until the document changes.
    is_document: bool = False


class Waiter(Protocol):
    """A held request that is notified when its view changes."""

    def view_changed(self) -> None:
        """Handle a change of the view; called on the event loop, once for each change."""


class Rendered:
    """One document in one api-version, as an encoded answer without the date."""

    __slots__ = ("_server", "body", "etag", "head")

    def __init__(self, document: Document, version: str, *, server: str, iaas: bool = True) -> None:
        """Render body, ETag and the head of 200. Source: E-7."""
        self.body = render_document(document, version, iaas=iaas)
        self.etag = f'"{document.incarnation}-{zlib.crc32(self.body):08x}"'
        self.head = head(200, len(self.body), server=server, headers=(("ETag", self.etag),))
        self._server = server

    def head_unchanged(self) -> bytes:
        """Return the head of 304, for a caller that already has the document. Source: E-7."""
        return head(304, 0, server=self._server, headers=(("ETag", self.etag),))


class CachedAnswer:
    """The cached answer to requests with the same bytes, valid until the document changes."""

    __slots__ = ("answer", "dated", "octets", "user_agent", "view")

    def __init__(self, view: PublishedView, answer: Answer, user_agent: str) -> None:
        self.view = view
        self.user_agent = user_agent
        self.answer = answer
        #: Complete answer with the date that has the number `dated`.
        self.octets = b""
        #: Number of the answer's date; see `MetadataService.dated`.
        self.dated = -1


class PublishedView:
    """The current document of one group, or of one VM of the group."""

    __slots__ = (
        "_rendered",
        "_server",
        "document",
        "enabled",
        "enabling",
        "group",
        "name",
        "ready",
        "ready_last",
        "waiters",
    )

    def __init__(self, name: str, server: str) -> None:
        """Start as an unpublished view, which is empty and not enabled. Source: B-1."""
        self.name = name
        self.group = name.partition("/")[0]
        self.enabled = False
        self.enabling = False
        self.document = Document()
        #: Request bytes -> cached answer on connections that stay open.
        self.ready: dict[bytes, CachedAnswer] = {}
        #: Request bytes -> cached answer on connections that close after the answer.
        self.ready_last: dict[bytes, CachedAnswer] = {}
        self.waiters: dict[Waiter, None] = {}
        self._server = server
        self._rendered: dict[tuple[str, bool], Rendered] = {}

    def publish(self, publication: Publication) -> None:
        """Replace the document and wake the requests that wait for a change.

        Previously requested versions are encoded immediately, and other versions on request.
        """
        assert publication.view == self.name
        changed = publication.document != self.document
        self.enabled = publication.enabled
        self.document = publication.document
        self.forget()
        if changed:
            for version, iaas in self._rendered:
                self._render(version, iaas=iaas)
        self.wake()

    def wake(self) -> None:
        """Wake all requests that wait for this view."""
        for waiter in tuple(self.waiters):
            waiter.view_changed()

    def rendered(self, version: str, *, iaas: bool = True) -> Rendered:
        """Return the document in an api-version; `iaas`: see `render_document`."""
        rendering = self._rendered.get((version, iaas))
        return self._render(version, iaas=iaas) if rendering is None else rendering

    def _render(self, version: str, *, iaas: bool) -> Rendered:
        rendering = Rendered(self.document, version, server=self._server, iaas=iaas)
        self._rendered[version, iaas] = rendering
        return rendering

    def ahead(self, version: str, *, by: int, iaas: bool = True) -> Rendered:
        """Return the unchanged document with its incarnation raised by `by`. Source: E-10."""
        moved = Document(self.document.incarnation + by, self.document.events)
        return Rendered(moved, version, server=self._server, iaas=iaas)

    def remember(self, request: bytes, answer: Answer, user_agent: str) -> None:
        """Cache the answer to these request bytes until the document changes."""
        ready = self.ready_last if answer.close else self.ready
        if request not in ready:
            if len(ready) >= READY_MAX:
                del ready[next(iter(ready))]
            ready[request] = CachedAnswer(self, answer, user_agent)

    def forget(self) -> None:
        """Drop the cached answers after a change of the document."""
        self.ready.clear()
        self.ready_last.clear()


class Snapshot:
    """All views by name."""

    def __init__(self, server: str) -> None:
        """Start empty; `server` is the `Server` header of all answers."""
        self._server = server
        self._views: dict[str, PublishedView] = {}

    def __len__(self) -> int:
        """Return the number of views."""
        return len(self._views)

    def view(self, name: str) -> PublishedView:
        """Return a view; create an unpublished view if necessary."""
        view = self._views.get(name)
        if view is None:
            view = self._views[name] = PublishedView(name, self._server)
        return view

    def publish(self, publications: tuple[Publication, ...], *, whole: bool) -> None:
        """Apply new documents; `whole` drops every view without a new document."""
        for publication in publications:
            self.view(publication.view).publish(publication)
        if whole:
            named = {publication.view for publication in publications}
            for name in [name for name in self._views if name not in named]:
                self._withdraw(name)

    def forget(self) -> None:
        """Drop all cached answers."""
        for view in self._views.values():
            view.forget()

    def _withdraw(self, name: str) -> None:
        """Make a view unpublished; drop the view unless a held request waits for it. Source: B-1.

        A held request refers to the view object, so the next published view must reuse the object.
        """
        view = self._views[name]
        view.enabled = False
        view.forget()
        view.wake()
        if not view.waiters:
            del self._views[name]
