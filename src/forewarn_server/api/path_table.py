"""Lookup of routes by path in constant time."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest

from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send


def match_path(pattern: str, path: str) -> dict[str, str] | None:
    """Return the values of a pattern's names in a path; None if the path does not match."""
    pairs = list(zip_longest(pattern.split("/"), path.split("/"), fillvalue=""))
    if all(each == part or (each.startswith("{") and part) for each, part in pairs):
        return {each.strip("{}"): part for each, part in pairs if each.startswith("{")}
    return None


def filled_path(pattern: str, names: Mapping[str, str]) -> str:
    """Return the path of a pattern with these values of its names."""
    parts = pattern.split("/")
    return "/".join(names[each.strip("{}")] if each.startswith("{") else each for each in parts)


class Table(BaseRoute):
    """Paths with their applications; a path has at most one `{name}`."""

    def __init__(self, paths: Mapping[str, ASGIApp]) -> None:
        self._exact: dict[str, ASGIApp] = {}
        #: Number of segments before the name -> fixed segments -> name, application.
        self._named: dict[int, dict[tuple[str, ...], tuple[str, ASGIApp]]] = {}
        for path, application in paths.items():
            parts = tuple(path.split("/"))
            names = [place for place, part in enumerate(parts) if part.startswith("{")]
            assert len(names) < 2, path
            for place in names:
                around = (*parts[:place], *parts[place + 1 :])
                entry = parts[place].strip("{}"), application
                self._named.setdefault(place, {})[around] = entry
            if not names:
                self._exact[path] = application

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Find the path of a request; fixed paths take precedence over paths with a name."""
        path: str = scope["path"]
        application = self._exact.get(path)
        if application is not None:
            return Match.FULL, {"endpoint": application, "path_params": {}}
        parts = tuple(path.split("/"))
        for place, named in self._named.items():
            match = named.get((*parts[:place], *parts[place + 1 :]))
            if match is not None and place < len(parts) and parts[place]:
                name, application = match
                return Match.FULL, {"endpoint": application, "path_params": {name: parts[place]}}
        return Match.NONE, {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to the application of its path."""
        await scope["endpoint"](scope, receive, send)
