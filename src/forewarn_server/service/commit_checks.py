"""Compares the commits that metadata nodes know with the store. Source: H-10."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from forewarn_base.errors import ForewarnError
from forewarn_store.errors import StoreWentBack

if TYPE_CHECKING:
    from collections.abc import Callable

    from forewarn_store import Store

#: Maximum number of commits that one transaction compares.
BATCH_MAX = 500


class CommitChecks:
    """Checks of one store. Checks that begin while one runs share the next transaction."""

    def __init__(self, store: Store, on_went_back: Callable[[StoreWentBack], object]) -> None:
        """Use it on one event loop; `on_went_back` is called for each lost commit."""
        self._store = store
        self._on_went_back = on_went_back
        self._waiting: dict[str, tuple[str, asyncio.Future[bool]]] = {}
        self._task: asyncio.Task[None] | None = None

    async def check(self, commit: str, node: str) -> bool:
        """Return whether the store has a commit that a node knows; False if this is unknown."""
        if not commit or commit == self._store.newest_commit():
            return True
        check = self._waiting.get(commit)
        if check is None:
            check = node, asyncio.get_running_loop().create_future()
            self._waiting[commit] = check
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return await asyncio.shield(check[1])

    async def _run(self) -> None:
        try:
            while self._waiting:
                batch = dict(tuple(self._waiting.items())[:BATCH_MAX])
                for commit in batch:
                    del self._waiting[commit]
                witnesses = {commit: f"node {node}" for commit, (node, _) in batch.items()}
                has_all = False
                try:
                    has_all = await asyncio.to_thread(self._compare, witnesses)
                finally:
                    for _, future in batch.values():
                        future.set_result(has_all)
        finally:
            self._task = None

    def _compare(self, witnesses: dict[str, str]) -> bool:
        try:
            self._store.check_commits(witnesses)
        except StoreWentBack as error:
            self._on_went_back(error)
            return False
        except ForewarnError:
            return False
        return True
