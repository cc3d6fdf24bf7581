"""Extensions: drivers, sources, sinks, gates and commands, each registered as an entry point.

Forewarn registers its own extensions in a table of each group, which `pyproject.toml` repeats for
other programs; a test compares both. Other packages register theirs in their `pyproject.toml`. Both
have the same form, a name and `MODULE:ATTRIBUTE`, and are loaded by the same function.

Only a name that is not in Forewarn's table leads to a search of the installed packages, because the
import of `importlib.metadata` takes longer than a whole `forewarn --help`.

The code of another package may fail or hang. It runs on a thread, for at most `LOAD_TIMEOUT_S`, and
each failure becomes an `ExtensionUnusable`, which names the package.
"""

from __future__ import annotations

import threading
from importlib import import_module

from forewarn_base.errors import CallerError, ForewarnError, clean_text

TYPE_CHECKING = False  # `typing` needs too much memory, for the agent
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from importlib.metadata import EntryPoint
    from typing import Any, TypeVar

    T = TypeVar("T")

#: Time limit for loading an extension of another package, in seconds. Afterwards the import goes
#: on in the background, and the next reload of the settings uses its result.
LOAD_TIMEOUT_S = 10.0
#: Maximum length of a reason from another package, in characters.
REASON_MAX = 300
#: Errors by which the code of an extension refuses its options.
REFUSALS = (ForewarnError, ValueError, OSError)


class ExtensionUnusable(CallerError):
    """An extension of another package cannot be loaded."""

    code = "extension-unusable"
    status = 501
    message = "The {kind} {name} of the package {package} cannot be used: {reason}."
    advice = "Update or remove the package {package}, or report the error to its authors. {then}"


class ExtensionMissing(CallerError):
    """An extension is in a package of Forewarn's that is not installed."""

    code = "extension-missing"
    status = 501
    message = (
        "The {kind} {name} needs the package {package}: pip install {install}, beside a clone."
    )
    advice = "Install the package. {then}"


class PartsMissing(CallerError):
    """Several parts of the settings are in packages that are not installed."""

    code = "parts-missing"
    status = 501
    message = "{problems}"
    advice = "{remedies}"


def raise_together(errors: Sequence[ForewarnError]) -> None:
    """Raise an error about parts that are not installed, which names all of them; none: return.

    Raises:
        ForewarnError: the only error.
        PartsMissing: there are several.
    """
    if len(errors) == 1:
        raise errors[0]
    if errors:
        remedies = " ".join(dict.fromkeys(each.advice_text() for each in errors))
        raise PartsMissing(problems=" ".join(map(str, errors)), remedies=remedies)


#: Kind of an extension -> what makes use of a package that was installed; others: the service.
_THEN = {
    "command": "Then run the command again.",
    "action": "Then run the command again.",
    "preparation": "Then restart the agent.",
}
_THEN_SERVICE = "Then run `forewarn reload`, or restart the service."


class ThreadCall:
    """A call on a thread of its own, which nobody has to wait for."""

    def __init__(self, work: Callable[[], Any], name: str) -> None:
        """Start the call on a thread of this name."""
        self._work = work
        self._result: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def wait(self, limit_s: float) -> bool:
        """Wait at most `limit_s` seconds for the end of the call; return whether it has ended."""
        self._thread.join(limit_s)
        return not self._thread.is_alive()

    def result(self) -> Any:  # noqa: ANN401 - of the call
        """Return the result of an ended call, or raise its error."""
        if self._error is not None:
            raise self._error
        return self._result

    def _run(self) -> None:
        try:
            self._result = self._work()
        except BaseException as error:  # noqa: BLE001 - SystemExit of an import, too
            self._error = error


class Extension:
    """One registered extension."""

    __slots__ = ("_load", "kind", "name", "package")

    def __init__(self, kind: str, name: str, load: Callable[[], Any], *, package: str = "") -> None:
        """Register an extension of a package; empty: of Forewarn."""
        self.kind, self.name, self.package = kind, name, package
        self._load = load

    def load(self) -> Any:  # noqa: ANN401 - each group has its own type
        """Return the registered object.

        Raises:
            ExtensionUnusable: it cannot be loaded, or not within `LOAD_TIMEOUT_S`.
        """
        return self.use(_itself)

    def use(self, work: Callable[[Any], T]) -> T:
        """Load the registered object, and return the result of `work` with it.

        Errors by which an extension refuses its options pass: see `REFUSALS`.

        Raises:
            ExtensionUnusable: the extension cannot be loaded, has failed, or takes too long.
        """
        if not self.package:
            return work(self._load())
        running = ThreadCall(lambda: self._use(work), f"load {self.name}")
        if not running.wait(LOAD_TIMEOUT_S):
            raise self.unusable(f"it takes more than {LOAD_TIMEOUT_S:g} s")
        result: T = running.result()
        return result

    def use_unlimited(self, work: Callable[[Any], T]) -> T:
        """Return the same as `use`, on this thread and without a limit of time, for a command.

        Raises:
            ExtensionUnusable: the extension cannot be loaded, or has failed.
        """
        return self._use(work) if self.package else work(self._load())

    def _use(self, work: Callable[[Any], T]) -> T:
        """Load the object and use it; convert each error that is not a refusal."""
        try:
            loaded = self._load()
        except BaseException as error:
            raise self.unusable(reason_in(error)) from error
        try:
            return work(loaded)
        except (*REFUSALS, KeyboardInterrupt):
            raise
        except BaseException as error:
            raise self.unusable(reason_in(error)) from error

    def unusable(self, reason: str) -> ExtensionUnusable:
        """Return the error for a reason, a clause without a full stop."""
        return ExtensionUnusable(
            kind=self.kind,
            name=self.name,
            package=self.package or "forewarn",
            reason=reason,
            then=_THEN.get(self.kind, _THEN_SERVICE),
        )


class ExtensionGroup:
    """The extensions of one kind."""

    def __init__(
        self,
        kind: str,
        built_in: Mapping[str, str],
        packages: Mapping[str, str] | None = None,
        *,
        extras: Mapping[str, str] | None = None,
    ) -> None:
        """Register Forewarn's own extensions: name -> `MODULE:ATTRIBUTE`.

        `kind` is a noun such as `driver`; the group of entry points is `forewarn.drivers`.
        `packages` names the extensions in Forewarn's other packages, each with its package. Those
        that are in both tables are found without a search of the installed packages. `extras` names
        the extras of `forewarn` that bring such a package with everything that it needs.
        """
        self.kind = kind
        self.built_in = built_in
        self.packages = packages or {}
        self._extras = extras or {}

    @property
    def entry_points(self) -> str:
        """The name of the group of entry points."""
        return f"forewarn.{self.kind}s"

    def find(self, name: str) -> Extension | None:
        """Return the extension of a name; Forewarn's own have priority. None: there is none.

        Raises:
            ExtensionMissing: the extension is in a package of Forewarn's that is not installed.
        """
        if target := self.built_in.get(name):
            if name in self.packages:
                self._check_installed(name, target)
            return Extension(self.kind, name, lambda: loaded(target))
        extension = self.installed().get(name)
        if extension is None and name in self.packages:
            raise self._missing(name)
        return extension

    def _check_installed(self, name: str, target: str) -> None:
        """Raise `ExtensionMissing` if the package of a target is not installed."""
        from importlib.util import find_spec  # noqa: PLC0415 - the agent needs none of it

        if find_spec(target.partition(".")[0]) is None:
            raise self._missing(name)

    def _missing(self, name: str) -> ExtensionMissing:
        then = _THEN.get(self.kind, _THEN_SERVICE)
        package, extra = self.packages[name], self._extras.get(name)
        install = f"'./forewarn[{extra}]'" if extra else f"./forewarn/packages/{package}"
        return ExtensionMissing(
            kind=self.kind, name=name, package=package, install=install, then=then
        )

    def names(self) -> list[str]:
        """Return the names of all extensions, in alphabetical order, installed or not."""
        return sorted({*self.built_in, *self.packages, *self.installed()})

    def installed(self) -> dict[str, Extension]:
        """Return the extensions of other packages by name; none has a name of Forewarn's own."""
        from importlib.metadata import entry_points  # noqa: PLC0415 - slow to import

        several: dict[str, list[EntryPoint]] = {}
        for each in entry_points(group=self.entry_points):
            # The metadata of an older Forewarn may list extensions that now have their own package.
            is_own = each.dist is not None and each.dist.name == "forewarn"
            if each.name not in self.built_in and not is_own:
                several.setdefault(each.name, []).append(each)
        return {name: self._extension(entries) for name, entries in several.items()}

    def _extension(self, entries: list[EntryPoint]) -> Extension:
        """Return the extension of one name, which two packages may not share."""
        first, packages = entries[0], sorted({_package(each) for each in entries})
        if len({each.value for each in entries}) == 1:
            return Extension(self.kind, first.name, first.load, package=packages[0])

        def refuse() -> None:
            raise LookupError(f"{' and '.join(packages)} have a {self.kind} of this name")

        return Extension(self.kind, first.name, refuse, package=packages[0])


def loaded(target: str) -> Any:  # noqa: ANN401 - each group has its own type
    """Return the object at `MODULE:ATTRIBUTE`, or the module at `MODULE`."""
    module, _, attribute = target.partition(":")
    return getattr(import_module(module), attribute) if attribute else import_module(module)


def _itself(loaded: T) -> T:
    return loaded


def _package(entry_point: EntryPoint) -> str:
    """Return the package that registers an entry point, with its version."""
    of = entry_point.dist
    return f"{of.name} {of.version}" if of else entry_point.value.partition(".")[0]


def reason_in(error: BaseException) -> str:
    """Return the reason in an error of another package, without a full stop."""
    return f"{type(error).__name__}: {clean_text(str(error), REASON_MAX)}".removesuffix(".")
