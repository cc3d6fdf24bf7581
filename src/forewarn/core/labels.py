"""Labels on hosts, and selectors that name hosts by them. No host is looked up in here.

A label is a pair such as `rack` and `r7`. A selector is text such as `zone=2,rack=r7`: what it
names has all of these. `zone` is a key like a label's; no label may be called that. Source: F-1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

from forewarn.errors import CallerError

if TYPE_CHECKING:
    from collections.abc import Iterable

Labels: TypeAlias = tuple[tuple[str, str], ...]
#: What selectors call a host's zone; no label may be called that.
ZONE = "zone"


class Labelled(Protocol):
    """A host, as far as selectors know it."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def zone(self) -> str:
        """Its zone."""

    @property
    def labels(self) -> Labels:
        """Its labels."""


class SelectorInvalid(CallerError):
    """A selector that cannot be read."""

    code = "selector-invalid"
    message = "The selector {selector!r} is invalid: {problem}."
    advice = "Write KEY=VALUE, several joined by commas: zone=2,rack=r7."


class NothingSelected(CallerError):
    """A selector that matches no host."""

    code = "nothing-selected"
    message = "No host has {selector}."
    advice = "`forewarn host list --json` shows every host's zone and labels."
    status = 404


def read_selector(text: str) -> Labels:
    """Return the pairs of a selector, in its order.

    Raises:
        SelectorInvalid: it has no pair, an invalid pair, or one key twice.
    """
    pairs: dict[str, str] = {}
    for part in text.split(","):
        key, separator, value = (each.strip() for each in part.partition("="))
        if not (key and separator and value) or "=" in value:
            raise SelectorInvalid(selector=text, problem=f"{part.strip()!r} is not KEY=VALUE")
        if key in pairs:
            raise SelectorInvalid(selector=text, problem=f"{key} stands in it twice")
        pairs[key] = value
    return tuple(pairs.items())


def select(hosts: Iterable[Labelled], selector: str) -> tuple[str, ...]:
    """Return the names of the hosts that have all a selector demands; costs the hosts.

    Raises:
        SelectorInvalid: the selector cannot be read.
        NothingSelected: it matches no host.
    """
    wanted = frozenset(read_selector(selector))
    names = tuple(host.name for host in hosts if wanted.issubset(pairs_of(host)))
    if not names:
        raise NothingSelected(selector=selector)
    return names


def pairs_of(host: Labelled) -> frozenset[tuple[str, str]]:
    """Return everything of a host that selectors, windows and budgets may name."""
    return frozenset((*host.labels, (ZONE, host.zone)))


def words_of(host: Labelled) -> frozenset[str]:
    """Return the same as `key=value`, as a policy writes it."""
    return frozenset(f"{key}={value}" for key, value in pairs_of(host))
