"""Numbered steps of the schema. One transaction runs all missing steps.

The steps are texts in `schema/`. Never edit a released step. A step whose name begins with
`expand_` only adds tables, or columns with a default, so that the previous version can run at the
same time; it may also make a table again that the previous version does not know. A step of a later
version removes replaced tables and columns. Source: H-8.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from forewarn_base.values import value
from forewarn_store.engine import Engine, Row, Transaction
from forewarn_store.errors import (
    StoreContradiction,
    StoreMissing,
    StoreSchemaDiffers,
    StoreSchemaOld,
    StoreTooNew,
)

#: Tables with the live state alone, whose pages a start checks.
LIVE_TABLES = (
    "service",
    "lease",
    "host",
    "vm_group",
    "vm",
    "enrolment",
    "document",
    "maintenance_policy",
    "principal",
    "access_token",
    "confirmation",
)
#: Pattern of the name of a step that only expands the schema.
EXPANDING = re.compile(r"^[0-9]{4}_expand_")


@value
class SchemaMigration:
    """One step of the schema, from a file such as `0001_initial.sql`."""

    number: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        """SHA-256 of the text in hexadecimal, which identifies the step in a store."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def tables(self) -> list[str]:
        """Names of the tables that the step creates, in the order of their references."""
        return _TABLE.findall(self.text)

    def statements(self, text: str) -> list[str]:
        """Split a text into statements, which end with a semicolon at the end of a line."""
        lines = [line for line in text.splitlines() if not line.lstrip().startswith("--")]
        parts = "\n".join(lines).split(";\n")
        return [part.strip().removesuffix(";") for part in parts if part.strip()]


@cache
def every_step() -> tuple[SchemaMigration, ...]:
    """Return the steps of this version, in order."""
    steps = tuple(
        SchemaMigration(int(file.name[:4]), file.stem, file.read_text(encoding="utf-8"))
        for file in sorted(Path(__file__).with_name("schema").glob("*.sql"))
    )
    assert [step.number for step in steps] == list(range(1, len(steps) + 1)), steps
    return steps


@cache
def every_table() -> tuple[str, ...]:
    """Return the tables of this version, in the order of their references."""
    return tables_of(every_step())


def tables_of(steps: Iterable[SchemaMigration]) -> tuple[str, ...]:
    """Return the tables of steps, in the order of their references; some make a table again."""
    return tuple(dict.fromkeys(table for step in steps for table in step.tables))


def check_live_pages(engine: Engine) -> None:
    """Check the pages of the live state. Cost: O(live state).

    Raises:
        StoreDamaged: the check failed.
    """
    for table in LIVE_TABLES:
        engine.check_table(table)


def migrate(
    engine: Engine,
    steps: tuple[SchemaMigration, ...] | None = None,
    *,
    must_exist: bool = False,
    upgrade: bool = False,
) -> int:
    """Upgrade the schema; return the number of steps that were run.

    If several processes call this function at the same time, the first upgrades, and the others
    wait.

    Args:
        engine: the open database.
        steps: the steps of this version; None: those in `schema/`.
        must_exist: whether the store must exist already.
        upgrade: whether to upgrade an existing store that other processes may use.

    Raises:
        StoreSchemaOld: steps are missing, other processes may use the store, and `upgrade` is
            false. Source: H-8.
        StoreMissing: no step was ever run, although the store must exist.
        StoreTooNew: a newer version has migrated the store; nothing was changed.
        StoreSchemaDiffers: other steps have created the store; nothing was changed.
    """
    every = every_step() if steps is None else steps
    count = 0
    if not _is_current(engine, every):  # write nothing if no step is missing
        must_exist = must_exist or engine.expects_store
        with engine.writing() as transaction:
            engine.lock_schema(transaction)
            how = {"must_exist": must_exist, "new_only": engine.is_shared and not upgrade}
            count = run_steps(engine, transaction, every, **how)
    engine.note_store()
    return count


def run_steps(
    engine: Engine,
    transaction: Transaction,
    every: tuple[SchemaMigration, ...],
    *,
    must_exist: bool = False,
    new_only: bool = False,
) -> int:
    """Run the missing steps in a transaction with the schema's lock.

    With `new_only`, the function creates stores, but does not upgrade them.

    Raises: the errors of `migrate`.
    """
    transaction.run_text(engine.schema_text(engine.statements.named("schema_table").text))
    done = transaction.rows("schema_steps")
    if must_exist and not done:
        raise StoreMissing(place=engine.place)
    check_steps(engine.place, done, every, beside_newer=True)
    if done and new_only and len(done) < len(every):
        raise StoreSchemaOld(place=engine.place, done=len(done), known=len(every))
    for step in every[len(done) :]:
        for statement in step.statements(engine.schema_text(step.text)):
            transaction.run_text(statement)
        transaction.run(
            "schema_step_done", number=step.number, name=step.name, checksum=step.checksum
        )
    return max(len(every) - len(done), 0)


def steps_done(engine: Engine) -> list[Row]:
    """Return the number, name and checksum of each step that a store has run."""
    try:
        return engine.rows("schema_steps")
    except StoreContradiction:  # the table does not exist yet
        return []


def missing_steps(engine: Engine) -> tuple[str, ...]:
    """Return the names of the steps of this version that a store lacks.

    Raises:
        StoreMissing: no step was ever run.
        StoreTooNew, StoreSchemaDiffers: see `check_steps`.
    """
    done = steps_done(engine)
    if not done:
        raise StoreMissing(place=engine.place)
    check_steps(engine.place, done, every_step(), beside_newer=True)
    return tuple(step.name for step in every_step()[len(done) :])


def check_steps(
    place: str,
    done: list[Row],
    every: tuple[SchemaMigration, ...],
    *,
    beside_newer: bool = False,
) -> None:
    """Refuse a store that other steps have created.

    `beside_newer` permits steps of a newer version that only expand the schema.

    Raises:
        StoreTooNew: a newer version has run steps that this version does not support.
        StoreSchemaDiffers: the steps differ in other ways.
    """
    newer = [name for _, name, _ in done[len(every) :]]
    if newer and not (beside_newer and all(EXPANDING.search(str(name)) for name in newer)):
        raise StoreTooNew(place=place, found=len(done), known=len(every))
    for (number, name, checksum), step in zip(done, every, strict=False):
        if (number, checksum) != (step.number, step.checksum):
            raise StoreSchemaDiffers(place=place, name=name)


_TABLE = re.compile(r"^CREATE TABLE (\w+)", re.MULTILINE)


def _is_current(engine: Engine, every: tuple[SchemaMigration, ...]) -> bool:
    """Return whether all these steps were run, also for a read-only store."""
    done = steps_done(engine)
    if not done or len(done) < len(every):
        return False
    check_steps(engine.place, done, every, beside_newer=True)
    return True
