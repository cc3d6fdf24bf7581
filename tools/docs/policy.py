"""The reference of the policy file, from the forms that read it."""

from __future__ import annotations

from forewarn_base.validation.fields import (
    Boolean,
    Choice,
    Duration,
    Integer,
    Share,
    Text,
    TimeOfDay,
    Timestamp,
    ValueType,
)
from forewarn_base.validation.forms import Field, Form, ListOf, Named
from forewarn_server.api.policy_file import POLICY, table_forms
from tools.docs.reference import page, table

_WORDS = {
    Boolean: "true or false",
    Duration: "duration: `90`, `15m` or `PT15M`",
    Integer: "integer",
    Share: "integer, or percentage",
    Text: "text",
    TimeOfDay: "time of day: `22:30`",
    Timestamp: "time: `2028-12-24T00:00:00+01:00`",
}


def policy_page() -> str:
    """Return the page of the policy file."""
    lines = [
        "Maintenances of many hosts follow this policy, beside the guarantees that always hold.",
        "`forewarn policy apply FILE` applies a file: TOML, YAML or JSON, by its ending.",
        "A file replaces the whole policy; members that it omits take their defaults.",
        "Examples: [windows](../howto/maintenance-windows.md),",
        "[budgets](../howto/maintenance-budgets.md).",
    ]
    places = [
        ("The whole file", POLICY),
        *(
            (f"{place.strip('[]').partition('.')[0].title()}: `{place}`", f)
            for place, f in table_forms()
        ),
    ]
    for title, form in places:
        lines += ["", f"## {title}", "", form.meaning, ""]
        lines += table(("member", "kind", "meaning"), map(_row, form.fields))
    return page("Policy file", *lines)


def _row(each: Field) -> tuple[str, ...]:
    name = f"`{each.name}`" + (" (required)" if each.required else "")
    return name, _kind(each.kind), each.meaning


def _kind(kind: ValueType) -> str:
    if isinstance(kind, ListOf):
        return f"list of {_kind(kind.kind)}".replace("list of one of", "list with any of")
    if isinstance(kind, Named):
        return "tables by name"
    if isinstance(kind, Form):
        return "tables"
    if isinstance(kind, Choice):
        return "one of " + ", ".join(f"`{word}`" for word in kind.values)
    return _WORDS[type(kind)]
