"""The store's SQL as named texts with named parameters.

Values are always passed as parameters, never written into the SQL. Statements for whole records
are generated from the records' columns. A new field of a record therefore needs only a migration.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from forewarn_core.fleet.records import FIXED, KEYS, KINDS, columns_of

#: Kind -> its table; the names `group` and `order` are reserved words in SQL.
TABLE_OF = dict(zip(KINDS, KINDS, strict=True)) | {
    "group": "vm_group",
    "plan": "maintenance_plan",
    "target": "maintenance_target",
    "choice": "owner_choice",
    "deferral": "owner_deferral",
    "policy": "maintenance_policy",
    "token": "access_token",
}

#: Kind -> column, table and key of a long list that never changes. A separate table contains the
#: list, so that changes of the record do not write it.
APART = {"maintenance": ("hosts", "maintenance_hosts", "maintenance")}


def column(name: str) -> str:
    """Return the column name of a record's field."""
    return "group_name" if name == "group" else name


@cache
def statement_texts() -> dict[str, str]:
    """Return the text of each statement by its name."""
    written = Path(__file__).with_name("queries.sql").read_text(encoding="utf-8")
    texts = {}
    for block in written.split("-- name: ")[1:]:
        name, _, text = block.partition("\n")
        for kind in KINDS:
            text = text.replace("{" + kind + "}", _columns(kind))
            text = text.replace("{" + kind + "_bytes}", _bytes(kind))
        texts[name.strip()] = text.strip()
    for kind in KINDS:
        texts[f"put_{kind}"] = _upsert(kind)
        texts[f"remove_{kind}"] = _delete(kind)
    for name, table, owner in APART.values():
        texts[f"put_{table}"] = f"INSERT INTO {table} ({owner}, {name}) VALUES (:{owner}, :{name})"  # noqa: S608 - names
    return texts


def _columns(kind: str) -> str:
    """Return the columns of a kind for reading, in the record's order."""
    columns = {name: column(name) for name in columns_of(kind)}
    if kind in APART:
        name, table, owner = APART[kind]
        key = f"{TABLE_OF[kind]}.{column(KEYS[kind])}"
        columns[name] = f"(SELECT {name} FROM {table} AS apart WHERE apart.{owner} = {key})"  # noqa: S608 - names
    return ", ".join(columns.values())


def _bytes(kind: str) -> str:
    """Return the length of a kind's row as text, in bytes."""
    names = [f"{TABLE_OF[kind]}.{column(name)}" for name in columns_of(kind)]
    return "(" + " + ".join(f"LENGTH(CAST({name} AS TEXT))" for name in names) + ")"


def _upsert(kind: str) -> str:
    apart = APART[kind][0] if kind in APART else ""
    names = [column(name) for name in columns_of(kind) if name != apart]
    key = column(KEYS[kind])
    marks = ", ".join(f":{name}" for name in names)
    fixed = {key, *map(column, FIXED.get(kind, ()))}
    updates = ", ".join(f"{name} = excluded.{name}" for name in names if name not in fixed)
    return (
        f"INSERT INTO {TABLE_OF[kind]} ({', '.join(names)}) VALUES ({marks})"  # noqa: S608 - names
        f" ON CONFLICT ({key}) DO UPDATE SET {updates}"
    )


def _delete(kind: str) -> str:
    return f"DELETE FROM {TABLE_OF[kind]} WHERE {column(KEYS[kind])} = :key"  # noqa: S608 - names
