"""The tidy checks of Python: shape, names, and where the impurities live."""

import ast
import re
import sys
from collections.abc import Iterator
from itertools import pairwise

from tests.tidy.house import Found, Function, Source, check

PARAMETERS_MAX = 5
POSITIONAL_MAX = 3
#: Two is the band to feel at home in; a third reads well where the order is the obvious one (draft,
#: operation, reason). A private function has its callers in sight.
POSITIONAL_PRIVATE_MAX = 4

BANNED_WORDS = {
    "util", "utils", "utility", "helper", "helpers", "common", "misc", "manager", "context",
    "base", "data", "stuff",
}  # fmt: skip

#: Every third-party package the product may import, and the rooms that may. A new one needs an ADR;
#: a room that is not named here stays free of it, the agent of all of them.
ROOMS_OF_PACKAGES = {
    "uvloop": ("forewarn_server.service.process",),
    "starlette": (
        "forewarn_server.api",
        "forewarn_azure",
        "forewarn_emulator",
        "forewarn_server.web",
    ),
    "uvicorn": ("forewarn_server.api.uvicorn_adapter",),
    "msgspec": (
        "forewarn_server.api.responses",
        "forewarn_metadata.replication.messages",
        "forewarn_core.requests",
        "forewarn_store",
    ),
    "nats": ("forewarn_sinks.nats_sink",),
    "aiokafka": ("forewarn_sinks.kafka_sink",),
    "apprise": ("forewarn_sinks.apprise_sink",),
    "opentelemetry": ("forewarn_server.telemetry.otlp",),
    "prometheus_client": ("forewarn_server.telemetry",),
    "libvirt": ("forewarn_libvirt",),
    "openstack": ("forewarn_openstack.client",),
    "keystoneauth1": ("forewarn_openstack.client",),
    "cryptography": ("forewarn_metadata.replication.tls",),
    "jwt": ("forewarn_server.api.issuer", "forewarn_server.api.oidc"),
    "psycopg": ("forewarn_store",),
    "yaml": ("forewarn_server.yaml_reader", "forewarn_server.cli.structured"),
    "cyclopts": (
        *("forewarn_server.cli", "forewarn_cli"),
        *("forewarn_conformance.command", "forewarn_emulator"),
    ),
    "rich": ("forewarn_server.cli",),
    "tzlocal": ("forewarn_azure.configuration_routes",),
    "pytest": ("forewarn_emulator.testing",),
}

NAMED_FOR_HOW = {"asked", "found", "made", "said", "taken", "told"}

UNIT_SUFFIXES = ("_ns", "_us", "_ms", "_s", "_m", "_h", "_days", "_min", "_max", "_count")


@check(
    "src/*.py",
    bad="def f(a, b, *, c, d, e, g): ...\n",
    good="def f(a, b, *, c, d, e): ...\n",
)
def parameter_count(source: Source) -> Found:
    """More facts than five are a value: give them a frozen dataclass.

    The fields of a hand-written value are exempt, as a dataclass's are, and so are the options of
    a command.
    """
    for function, parameters in _signatures(source):
        if any(_declares_command(each) for each in function.decorator_list):
            continue
        fields_by_name = (
            function.name == "__init__" and len(_positional(function)) <= POSITIONAL_MAX
        )
        if len(parameters) > PARAMETERS_MAX and not fields_by_name:
            sentence = f"{function.name} takes {len(parameters)}; at most {PARAMETERS_MAX}"
            yield function.lineno, sentence, function.name


def _declares_command(decorator: ast.expr) -> bool:
    """Whether a decorator makes a function a command of the command line."""
    named = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(named, ast.Attribute) and named.attr in {"command", "default"}


@check("src/*.py", bad="def f(a, b, c, d): ...\n", good="def f(a, b, c, *, d): ...\n")
def positional_count(source: Source) -> Found:
    """A call with many bare values cannot be read: give the rest by name."""
    for function, _ in _signatures(source):
        private = function.name.startswith("_") and function.name != "__init__"
        most = POSITIONAL_PRIVATE_MAX if private else POSITIONAL_MAX
        count = len(_positional(function))
        if count > most and not _is_prescribed(function.name):
            sentence = f"{function.name} takes {count} by position; keyword-only after {most}"
            yield function.lineno, sentence, function.name


@check("src/*.py", bad="def f(n):\n    return f(n - 1)\n", good="def f(n):\n    return g(n)\n")
def no_recursion(source: Source) -> Found:
    """A loop has a limit that can be named; a stack has not.

    A function that is handed on and calls back later (a timer set again) does not grow the stack.
    """
    for function in source.functions():
        later = (ast.Lambda, ast.FunctionDef, ast.AsyncFunctionDef)
        inner = [node for node in ast.walk(function) if isinstance(node, later)]
        handed_on = {id(call) for one in inner if one is not function for call in ast.walk(one)}
        for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
            called = call.func
            last = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if last != function.name or id(call) in handed_on:
                continue
            if ast.unparse(called) in _own_names(source, function):
                yield call.lineno, f"{function.name} calls itself; use a loop", function.name


@check("*.py", bad="class PlanManager: ...\n", good="class Plan: ...\n")
def no_banned_names(source: Source) -> Found:
    """A name says what the thing is; words that fit everything say nothing."""
    stem = source.path.rsplit("/", 1)[-1].removesuffix(".py")
    names = [(1, stem)]
    names += [(node.lineno, node.name) for node in source.walk(ast.ClassDef)]
    for line, name in names:
        words = re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)
        if banned := BANNED_WORDS.intersection(word.lower() for word in words):
            yield line, f"{name}: not {banned.pop()!r}; name it after its noun", name


@check(
    "src/*.py",
    bad="import time\nimport uuid\n",
    good="from forewarn_base.clock import Clock\nfrom forewarn_base.ids import Ids\n",
)
def impurities_at_home(source: Source) -> Found:
    """Time is read in one module, randomness in another; everyone else is given the value."""
    homes = {
        "time": ("forewarn_base.clock", "take `now_ms`, or a Clock at the edges"),
        "random": ("forewarn_base.ids", "take ids, or an Ids at the edges"),
        "secrets": ("forewarn_base.ids", "use Ids.token"),
        "uuid": ("forewarn_base.ids", "use Ids.guid"),
    }
    for line, name in source.imports():
        home, instead = homes.get(name.partition(".")[0], ("", ""))
        if home and source.module != home:
            yield line, f"only {home} imports {name}: {instead}", name
    for node in source.walk(ast.Call):
        called = ast.unparse(node.func)
        if re.search(r"\b(datetime|date)\.(now|utcnow|today)$", called):
            yield node.lineno, f"{called} reads the time: take `now_ms`", called
        if called == "os.urandom":
            yield node.lineno, "os.urandom is randomness: use Ids.token", called


@check("src/*.py", bad="import flask\n", good="import json\n")
def packages_in_their_rooms(source: Source) -> Found:
    """A third-party package appears in its rooms alone, so that it can be replaced."""
    for line, name in source.imports():
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names or top.partition("_")[0] == "forewarn":
            continue
        rooms = ROOMS_OF_PACKAGES.get(top, ())
        if not any(_within(source.module, room) for room in rooms):
            allowed = " or ".join(rooms) if rooms else "no room; a new package needs an ADR"
            yield line, f"{top} may be imported by {allowed}", top


@check(
    "src/*.py",
    bad="def f(a):\n    found = a.policy\n    return found\n",
    good="def f(a):\n    policy = a.policy\n    return policy\n",
)
def locals_name_the_thing(source: Source) -> Found:
    """A local is named for what it is, not for how it was got: `policy`, not `found`."""
    for function in source.functions():
        stored = (n for n in ast.walk(function) if isinstance(n, ast.Name | ast.arg))
        for node in stored:
            name = node.arg if isinstance(node, ast.arg) else node.id
            is_new = isinstance(node, ast.arg) or isinstance(node.ctx, ast.Store)
            if is_new and name in NAMED_FOR_HOW:
                yield node.lineno, f"{name}: name the thing, not how it was got", name


@check("*.py", bad='LIMIT = 5\n"""Most tries."""\n', good="#: Most tries.\nLIMIT = 5\n")
def fields_have_comments(source: Source) -> Found:
    """A field or constant is documented by a comment with `#:` before it, not by a string after."""
    for node in ast.walk(source.tree):
        body = getattr(node, "body", None)
        for one, after in pairwise(body if isinstance(body, list) else ()):
            text = after.value if isinstance(after, ast.Expr) else None
            is_text = isinstance(text, ast.Constant) and isinstance(text.value, str)
            if is_text and isinstance(one, ast.Assign | ast.AnnAssign):
                yield after.lineno, "write the text before the assignment, with `#:`"


@check("src/*.py", bad="poll_timeout = 5\n", good="poll_timeout_s = 5\n")
def durations_have_units(source: Source) -> Found:
    """A duration's name ends in its unit."""
    names = [(node.lineno, node.arg) for node in source.walk(ast.arg)]
    names += [(n.lineno, n.id) for n in source.walk(ast.Name) if isinstance(n.ctx, ast.Store)]
    for line, name in names:
        lower = name.lower()
        if re.search(r"(timeout|delay|interval|latency|ttl)$", lower):
            yield line, f"{name}: of what? end it in a unit ({', '.join(UNIT_SUFFIXES[:4])})", name


@check(
    "src/*.py",
    bad='q = "SELECT id FROM event"\n',
    good='q = queries["event_by_id"]\n',
    at="src/forewarn_server/control/sample.py",
)
def sql_in_the_store(source: Source) -> Found:
    """SQL has one home, and there it lives in `.sql`."""
    if _within(source.module, "forewarn_store"):
        return
    pattern = r"\b(SELECT\s.+\sFROM|INSERT\s+INTO|UPDATE\s+\w+\s+SET|DELETE\s+FROM)\b"
    for node in source.walk(ast.Constant):
        if isinstance(node.value, str) and re.search(pattern, node.value, re.DOTALL):
            yield node.lineno, "SQL outside the store: name it in queries.sql"


@check(
    "src/*.py",
    bad="import logging\nlog = logging.getLogger(__name__)\n",
    good='import logging\nlog = logging.getLogger("forewarn.store")\n',
)
def loggers_below_forewarn(source: Source) -> Found:
    """A logger's name begins with `forewarn.`, whichever package it is in: so the settings say."""
    for node in source.walk(ast.Call):
        if ast.unparse(node.func) == "logging.getLogger" and node.args:
            name = ast.unparse(node.args[0])
            if name == "__name__" or name.startswith("'forewarn_"):
                yield node.lineno, f"{name}: write a name such as 'forewarn.store'", name


@check(
    "tests/*.py",
    bad="import time\ntime.sleep(1)\n",
    good="arrived.wait(timeout=5)\n",
    at="tests/core/test_sample.py",
)
def tests_do_not_sleep(source: Source) -> Found:
    """A test waits for what it is about, with a limit; it does not hope a pause is enough."""
    for node in source.walk(ast.Call):
        called = ast.unparse(node.func)
        if re.fullmatch(r"(time\.|asyncio\.)?sleep", called) and ast.unparse(node) != (
            "asyncio.sleep(0)"
        ):
            yield node.lineno, "tests do not sleep: see wait_until in tests/waiting.py", called


@check(
    "tests/*.py",
    bad="from unittest import mock\n",
    good="from tests.protocol import fakes\n",
    at="tests/core/test_sample.py",
)
def tests_do_not_mock(source: Source) -> Found:
    """Fakes of the outside are written once and behave; tests use our own code unchanged."""
    for line, name in source.imports():
        if name.startswith(("unittest.mock", "mock")):
            yield line, "no mocks: use the real thing, or a fake of the outside"


def _positional(function: Function) -> list[ast.arg]:
    arguments = [*function.args.posonlyargs, *function.args.args]
    if arguments and arguments[0].arg in {"self", "cls", "mcs"}:
        del arguments[0]
    return arguments


def _signatures(source: Source) -> Iterator[tuple[Function, list[ast.arg]]]:
    for function in source.functions():
        yield function, [*_positional(function), *function.args.kwonlyargs]


def _is_prescribed(name: str) -> bool:
    """Tell whether Python prescribes the signature, as it does for `__exit__`."""
    return name.startswith("__") and name != "__init__"


def _own_names(source: Source, function: Function) -> set[str]:
    """Return how a function would call itself: by its name, or a method through `self`."""
    for owner in source.walk(ast.ClassDef):
        if function in owner.body:
            return {f"self.{function.name}", f"cls.{function.name}"}
    inner = (node for node in ast.walk(function) if isinstance(node, ast.ImportFrom))
    shadowed = {alias.asname or alias.name for node in inner for alias in node.names}
    return {function.name} - shadowed


def _within(module: str, room: str) -> bool:
    return module == room or module.startswith(f"{room}.")


@check("*.py", bad='"""Ha' + 've it done."""\n', good='"""Return it."""\n')
def plain_docstrings(source: Source) -> Found:
    """A docstring begins with a verb that says what the code does."""
    for node in (source.tree, *source.walk(ast.ClassDef), *source.functions()):
        text = ast.get_docstring(node) or ""
        if found := re.match(r"(Have|Say|Stand|Let|Be)\b", text):
            yield getattr(node, "lineno", 1), f"a docstring begins with {found[0]!r}"
