"""`serve --check` finds what a start would end with, under the same code, and changes nothing."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from forewarn_base.clock import SystemClock
from forewarn_base.errors import ForewarnError
from forewarn_base.ids import Ids
from forewarn_base.settings import Settings
from forewarn_server.service.daemon import Daemon
from forewarn_server.service.settings_check import check_settings
from forewarn_server.service.start_check import check_start
from forewarn_server.settings_loader import load_settings
from forewarn_store import open_store
from forewarn_store.migrations import SchemaMigration, every_step, migrate

BASE = """
listen.metadata = ["127.0.0.1:0"]
listen.operator = "127.0.0.1:0"
store.url = "{home}/store.db"
"""


def lose(store: Path) -> None:
    """Remove a store that was used, not its lock file."""
    open_store(str(store)).close()
    store.unlink()


def upgrade(store: Path) -> None:
    """Bring a store to a schema of the future."""
    opened = open_store(str(store))
    step = SchemaMigration(len(every_step()) + 1, "0099_next", "CREATE TABLE extra (a BIGINT);\n")
    migrate(opened._engine, (*every_step(), step))
    opened.close()


#: Fault -> settings, what happened to the store before, and the code of the error.
FAULTS: dict[str, tuple[str, Callable[[Path], object] | None, str]] = {
    "file": ("listen.operator = [", None, "settings-unreadable"),
    "setting": ("store.odd = 1", None, "setting-invalid"),
    "no-directory": ('store.url = "{home}/none/store.db"', None, "store-unavailable"),
    "directory": ("", Path.mkdir, "store-unavailable"),
    "damaged": ("", lambda store: store.write_bytes(b"x" * 9000), "store-damaged"),
    "newer": ("", upgrade, "store-too-new"),
    "lost": ("", lose, "store-missing"),
    "must-exist": ("store.must_exist = true", None, "store-missing"),
    "metadata": ('listen.metadata = ["{taken}"]', None, "address-unavailable"),
    "metadata-unix": ('listen.metadata = ["unix:/none/s"]', None, "address-unavailable"),
    "operator": ('listen.operator = "{taken}"', None, "operator-address-taken"),
    "operator-unix": ('listen.operator = "unix:/none/s"', None, "operator-address-taken"),
    "local": ('listen.local = "unix:/none/s"', None, "operator-address-taken"),
    "metrics": ('listen.metrics = "{taken}"', None, "operator-address-taken"),
    "feed": ('feed.listen = "{taken}"', None, "operator-address-taken"),
    "azure": ('azure.listen = "{taken}"', None, "operator-address-taken"),
    "operator-tls": (
        'operator.certificate = "/no"\noperator.key = "/no"',
        None,
        "tls-files-invalid",
    ),
    "azure-tls": (
        'azure.listen = "127.0.0.1:0"\nazure.certificate = "/no"',
        None,
        "certificate-unusable",
    ),
    "driver": ('drivers.default = "magic"', None, "driver-unknown"),
    "driver-kind": ('drivers.a.kind = "magic"', None, "driver-kind-unknown"),
    "program": (
        'drivers.a = {{kind = "command", begin = ["/no"], state = "{home}"}}',
        None,
        "driver-unusable",
    ),
    "secret": (
        'drivers.a = {{kind = "webhook", url = "http://localhost", secret_file = "/no"}}',
        None,
        "driver-unusable",
    ),
    "outbox": (
        'outbox.a = {{kind = "webhook", url = "http://localhost", token_file = "/no"}}',
        None,
        "outbox-destination-invalid",
    ),
    "export": (
        'history.max_bytes = 1000\nhistory.export_directory = "/no"',
        None,
        "setting-invalid",
    ),
}


@pytest.fixture
def taken() -> Iterator[str]:
    """The address of a port on which somebody else listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def files_in(directory: Path) -> list[str]:
    """Return the names of the files there; a lock that nobody holds is nothing."""
    return sorted(each.name for each in directory.iterdir() if each.suffix != ".lock")


def code_of(path: Path, run: Callable[[Settings], object]) -> str:
    """Return the code of the error that some use of a settings file ends with."""
    try:
        settings = load_settings([path], {})
        check_settings(settings)
        run(settings)
    except ForewarnError as error:
        return error.code
    return ""


def start(settings: Settings) -> None:
    """Start a service, and stop it."""

    async def serve() -> None:
        daemon = Daemon(settings, clock=SystemClock(), ids=Ids())
        await daemon.start()
        await daemon.stop()

    asyncio.run(serve())


@pytest.mark.parametrize("fault", FAULTS)
def test_check_and_start_end_with_one_code(tmp_path: Path, taken: str, fault: str) -> None:
    """What a start would refuse, the check refuses; a busy address creates no store."""
    text, prepare, code = FAULTS[fault]
    path = tmp_path / "forewarn.toml"
    name = text.partition(" ")[0]
    kept = [line for line in BASE.splitlines() if line.partition(" ")[0] != name]
    path.write_text("\n".join([*kept, text]).format(home=tmp_path, taken=taken))
    if prepare is not None:
        prepare(tmp_path / "store.db")
    before = files_in(tmp_path)
    assert code_of(path, lambda settings: asyncio.run(check_start(settings))) == code
    assert files_in(tmp_path) == before
    assert code_of(path, start) == code
    if code in {"operator-address-taken", "address-unavailable"}:
        assert files_in(tmp_path) == before


def test_check_beside_a_running_service_is_sound(tmp_path: Path, taken: str) -> None:
    """Its store and its ports are in use: notes, no faults."""
    path = tmp_path / "forewarn.toml"
    path.write_text(BASE.format(home=tmp_path).replace("127.0.0.1:0", taken))
    opened = open_store(str(tmp_path / "store.db"))
    notes = asyncio.run(check_start(load_settings([path], {})))
    assert "Another forewarn process uses the store" in notes[0]
    assert [taken in note for note in notes[1:]] == [True, True]
    opened.close()
