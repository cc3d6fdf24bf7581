"""A call as people say it, for the second person who confirms the call. Source: P-8."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from string import Formatter
from urllib.parse import parse_qsl

from forewarn_base.validation.json_reader import read_json
from forewarn_server.api.routes import ApiCall, Route

#: What people call a method, where the path has no verb.
_VERBS = {"PUT": "change", "DELETE": "remove", "POST": "request"}


def sentence_of(route: Route, call: ApiCall) -> str:
    """Return the sentence of a call: `fail host h1 (reason smoke)`.

    The route names the act, and the other members of the call follow in brackets.
    """
    members = dict(_members(route, call))
    pattern = route.sentence or _usual(route)
    named = {name for _, name, _, _ in Formatter().parse(pattern) if name}
    act = pattern.format_map({name: call.path.get(name) or members.get(name) for name in named})
    rest = [f"{name} {text}".strip() for name, text in members.items() if name not in named]
    return f"{act} ({', '.join(rest)})" if rest else act


def _usual(route: Route) -> str:
    """Return the pattern that follows from a path: `fail host {name}`, `change vm {name}`."""
    kind, *names = route.path.split("/")[2:]
    thing = kind.removesuffix("s")
    if len(names) == 2:
        name, verb = names
        return f"{verb} {thing} {name}"
    return " ".join((_VERBS[route.method], thing, *names))


def _members(route: Route, call: ApiCall) -> Iterator[tuple[str, str]]:
    """Yield what a call gives in its form and its query; a document is too long for a sentence."""
    form = read_json(call.body) if route.form and call.body else {}
    assert isinstance(form, Mapping), "a form is an object"
    query = dict(parse_qsl(call.query_text, keep_blank_values=True))
    for name, member in {**form, **query}.items():
        if member not in (False, None, "", [], {}):
            yield name, _text(member)


def _text(member: object) -> str:
    """Return a member in words; a flag needs none but its name."""
    if isinstance(member, list):
        return ", ".join(map(str, member))
    return "" if member is True else str(member)
