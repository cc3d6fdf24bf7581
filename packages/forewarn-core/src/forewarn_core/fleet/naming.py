"""Limits of names, texts and lists in records of the fleet.

Independent of the layout: `topology.py` checks whether a host exists.
"""

from __future__ import annotations

import re
from typing import TypeAlias

from forewarn_base.errors import CallerError
from forewarn_base.names import NAME_PATTERN, TEXT_LENGTH_MAX
from forewarn_core.fleet.refusals import FleetContradiction, noun_of

Labels: TypeAlias = tuple[tuple[str, str], ...]
#: The selector key of a host's zone; no label may have this key.
ZONE = "zone"


class SelectorInvalid(CallerError):
    """The selector is invalid."""

    code = "selector-invalid"
    message = "The selector {selector!r} is invalid: {problem}."
    advice = "Write KEY=VALUE, several joined by commas: zone=2,rack=r7."


class NothingSelected(CallerError):
    """The selector matches no host."""

    code = "nothing-selected"
    message = "No host matches {selector}."
    advice = "`forewarn host list --json` shows every host's zone and labels."
    status = 404


def read_selector(text: str) -> Labels:
    """Return the pairs of a selector, in order.

    Raises:
        SelectorInvalid: it has no pair, an invalid pair, or one key twice.
    """
    pairs: dict[str, str] = {}
    for part in text.split(","):
        key, separator, value = (each.strip() for each in part.partition("="))
        if not (key and separator and value) or "=" in value:
            raise SelectorInvalid(selector=text, problem=f"{part.strip()!r} is not KEY=VALUE")
        if key in pairs:
            raise SelectorInvalid(selector=text, problem=f"{key} occurs twice")
        pairs[key] = value
    return tuple(pairs.items())


#: Maximum domain number; the public cloud has at most 3 fault and 20 update domains.
DOMAIN_MAX = 999
#: Maximum memory of one host or VM, in MiB: 64 TiB.
MEMORY_MIB_MAX = 1 << 26
#: Maximum addresses of one VM; a VM has few interfaces.
ADDRESSES_MAX = 64
TAGS_MAX = 64
#: Maximum extra instance metadata of one VM: members, and characters of all names and values
#: together. The metadata is in memory and sent to metadata nodes, so 64 KiB of user data do not
#: fit.
INSTANCE_MAX = 64
INSTANCE_LENGTH_MAX = 16_384

#: Maximum labels of one host.
LABELS_MAX = 16
#: The label that budgets and waves use as a rack.
RACK = "rack"
#: Form of a label's key.
KEY_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._/-]{0,62}"
#: Form of a label's value: no comma, equals sign or space, so that selectors can name it.
VALUE_PATTERN = r"[^\x00-\x20,=]{1,63}"
_LABEL_KEY, _LABEL_VALUE = re.compile(KEY_PATTERN), re.compile(VALUE_PATTERN)


def check_name(kind: str, name: str) -> None:
    """Refuse an invalid name. All checks here raise `FleetContradiction`."""
    if not NAME_PATTERN.fullmatch(name):
        raise FleetContradiction(
            problem=f"{noun_of(kind)} {name!r}: a name is 1 to 128 letters, digits, `_`, `.`, `-`,"
            " and starts with a letter, digit or `_`"
        )


def check_text(kind: str, name: str, texts: tuple[str, ...]) -> None:
    """Refuse texts that are too long or not printable."""
    joined = "".join(texts)
    if len(joined) <= TEXT_LENGTH_MAX and joined.isprintable():
        return  # the usual case, and a fleet has millions of texts
    for text in texts:
        if len(text) > TEXT_LENGTH_MAX or not text.isprintable():
            raise FleetContradiction(
                problem=f"{noun_of(kind)} {name}: {text[:40]!r} is longer than {TEXT_LENGTH_MAX}"
                " characters or not printable"
            )


def check_memory(kind: str, name: str, memory_mib: int) -> None:
    """Refuse an implausible amount of memory."""
    if not 0 <= memory_mib <= MEMORY_MIB_MAX:
        problem = f"memory_mib {memory_mib} is not from 0 (unknown) to {MEMORY_MIB_MAX}"
        raise FleetContradiction(problem=f"{noun_of(kind)} {name}: {problem}")


def check_labels(name: str, labels: tuple[tuple[str, str], ...]) -> None:
    """Refuse host labels that selectors could not name."""
    if len(labels) > LABELS_MAX:
        raise FleetContradiction(problem=f"host {name}: more than {LABELS_MAX} labels")
    for key, value in labels:
        if not _LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(value):
            problem = f"host {name}: {key[:40]}={value[:40]} cannot be a label"
            raise FleetContradiction(problem=problem)
        if key == ZONE:
            raise FleetContradiction(
                problem=f"host {name}: its zone is not a label; set it as zone"
            )


def check_kept_labels(name: str, apart: tuple[str, ...], together: tuple[str, ...]) -> None:
    """Refuse labels that no host can have, and labels that a group names twice."""
    keys = (*apart, *together)
    if len(keys) > LABELS_MAX:
        raise FleetContradiction(problem=f"group {name}: it names more than {LABELS_MAX} labels")
    for place, key in enumerate(keys):
        if not _LABEL_KEY.fullmatch(key):
            raise FleetContradiction(problem=f"group {name}: {key[:40]} cannot be a label's name")
        if key in keys[:place]:
            problem = f"group {name}: it names the label {key} twice in keep_apart or keep_together"
            raise FleetContradiction(problem=problem)


def check_instance(name: str, members: tuple[tuple[str, str], ...]) -> None:
    """Refuse too much or unprintable metadata; only lists of keys may have several lines."""
    texts = [text for member in members for text in member]
    length = sum(len(text) for text in texts)
    if len(members) > INSTANCE_MAX or length > INSTANCE_LENGTH_MAX:
        raise FleetContradiction(
            problem=f"VM {name}: instance metadata has {len(members)} members and {length}"
            f" characters; at most {INSTANCE_MAX} and {INSTANCE_LENGTH_MAX} are allowed"
        )
    if not all(text.replace("\n", "").isprintable() for text in texts):
        raise FleetContradiction(problem=f"VM {name}: instance metadata must be printable")
