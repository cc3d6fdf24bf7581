"""Objects of one kind, kept in step with the API server: listed once, and watched from then on.

What they mean is in `discovery.py`.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from forewarn.drivers.kubernetes.client import VersionExpired
from forewarn.errors import ForewarnError

if TYPE_CHECKING:
    from collections.abc import Callable

    from forewarn.drivers.kubernetes.client import Kubernetes

#: Seconds until the API server is tried again: the first time, and at most.
RETRY_S, RETRY_MAX_S = 1.0, 30.0
Facts = TypeVar("Facts")


class Watched(Generic[Facts]):
    """What is known of each object; memory grows with their number, not with their size."""

    def __init__(
        self,
        kubernetes: Kubernetes,
        path: str,
        read: Callable[[dict[str, Any]], Facts],
        *,
        changed: threading.Event,
    ) -> None:
        """Ask nothing yet.

        Args:
            kubernetes: the API server.
            path: of the list.
            read: returns what is to be known of an object.
            changed: is set whenever that changes.
        """
        self._kubernetes = kubernetes
        self._path = path
        self._read = read
        self._changed = changed
        self._lock = threading.Lock()
        #: Namespace and name -> facts.
        self._known: dict[tuple[str, str], Facts] = {}
        self._failed: ForewarnError | None = None
        #: Up to where `_known` is; empty: it has to be listed.
        self._version = ""
        self._asked = threading.Event()
        self._closed = threading.Event()

    def start(self) -> None:
        """Follow it on a thread of its own."""
        threading.Thread(target=self._follow, name=f"watch {self._path}", daemon=True).start()

    def close(self) -> None:
        """Ask no more, once the request that is under way has ended."""
        self._closed.set()

    def facts(self) -> list[Facts]:
        """Return what is known now; the first time, once that has been asked for.

        Raises:
            ForewarnError: why it is not known, or may be old.
        """
        self._asked.wait()
        with self._lock:
            if self._failed is not None:
                raise self._failed
            return list(self._known.values())

    def _follow(self) -> None:
        pause_s = RETRY_S
        while not self._closed.is_set():
            try:
                if not self._version:
                    self._list()
                pause_s = RETRY_S
                self._watch()
            except VersionExpired:
                self._version = ""
            except ForewarnError as error:
                self._fail(error)
                self._closed.wait(pause_s)
                pause_s = min(pause_s * 2, RETRY_MAX_S)

    def _list(self) -> None:
        found: dict[tuple[str, str], Facts] = {}
        version = ""
        for page in self._kubernetes.pages(self._path):
            found |= {_key(each): self._read(each) for each in page.get("items") or []}
            version = page["metadata"]["resourceVersion"]
        with self._lock:
            self._known, self._failed, self._version = found, None, version
        self._asked.set()
        self._changed.set()

    def _watch(self) -> None:
        for change in self._kubernetes.watch(self._path, self._version):
            self._answered()
            if change:
                self._take(change["type"], change["object"])
            if self._closed.is_set():
                return

    def _take(self, kind: str, form: dict[str, Any]) -> None:
        key = _key(form)
        with self._lock:
            before = self._known.get(key)
            if kind == "DELETED":
                self._known.pop(key, None)
            elif kind != "BOOKMARK":
                self._known[key] = self._read(form)
            differs = self._known.get(key) != before
            self._version = form["metadata"]["resourceVersion"]
        if differs:
            self._changed.set()

    def _answered(self) -> None:
        """Note that what is known is up to date."""
        with self._lock:
            was, self._failed = self._failed, None
        if was is not None:
            self._changed.set()

    def _fail(self, error: ForewarnError) -> None:
        with self._lock:
            self._failed = error
        self._asked.set()
        self._changed.set()


def _key(form: dict[str, Any]) -> tuple[str, str]:
    meta = form["metadata"]
    return meta.get("namespace", ""), meta.get("name", "")
