"""Reads large files and lists of names in a separate process, so that reading delays no poll.

Python's parsers hold the interpreter: a TOML or YAML file of 4 MB for seconds, in slices between
which a poll may run, and a JSON list without a pause. The process parses the file, checks it by its
form, and prints either its members as lines of JSON, or one line with the refusal. The service then
reads only valid members, a few at a time.

Start: `python -m forewarn_server.api.file_process KIND MEDIA`.
"""

from __future__ import annotations

import io
import itertools
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

from forewarn_base.errors import CallerError, OurError
from forewarn_base.programs import ProgramFailed, ProgramLimits, Watch, run_program
from forewarn_base.validation.complexity import Abandoned, FileTooComplex, abandoned, checkpoint
from forewarn_base.validation.fields import ValidationFailed, Values
from forewarn_base.validation.forms import Form
from forewarn_base.validation.json_reader import BodyUnreadable
from forewarn_base.values import value
from forewarn_server.api.policy_file import POLICY
from forewarn_server.api.request_forms import MAINTENANCE, POSTPONE, TOPOLOGY
from forewarn_server.api.topology_file import parsed
from forewarn_server.control.planner_worker import give_way

#: Largest file that the service itself reads, in bytes. Starting a process takes 0.1 s.
HERE_BYTES_MAX = 64 * 1024
#: Time limit of a process, in seconds.
READ_S_MAX = 60.0
#: Number of members of one line.
PART = 500
#: Longest output of a process, as a multiple of the file: JSON has more quotes than YAML.
OUTPUT_FACTOR = 16


class FileProcessFailed(OurError):
    """The process that reads a file failed."""

    code = "file-process-failed"
    message = "The process that reads the file {problem}."
    advice = (
        "Try again. If the kernel ended the process, the machine needs more memory; otherwise "
        "report this with the file. Nothing was changed."
    )


@value
class FileKind:
    """A kind of file: its name, its form, and its name in errors."""

    name: str
    form: Form
    where: str


TOPOLOGY_FILE = FileKind("topology", TOPOLOGY, "the topology")
POLICY_FILE = FileKind("policy", POLICY, "the policy")

#: Bodies that may list every host of a fleet, by the name of their form.
NAMES_BODIES = {
    form.name: FileKind(form.name, form, "the body") for form in (MAINTENANCE, POSTPONE)
}

_KINDS = {each.name: each for each in (TOPOLOGY_FILE, POLICY_FILE, *NAMES_BODIES.values())}
_REFUSALS: dict[str, Callable[..., CallerError]] = {
    each.__name__: each for each in (BodyUnreadable, FileTooComplex, ValidationFailed)
}


def read_file(kind: FileKind, body: bytes, media: str) -> Values:
    """Return the members of a file; a large one is read in a process. Call it on a thread.

    Raises:
        BodyUnreadable, FileTooComplex, ValidationFailed: the file is refused.
        Abandoned: the caller no longer waits.
        FileProcessFailed: the process hung, died or gave an invalid answer.
    """
    if len(body) <= HERE_BYTES_MAX:
        return kind.form.read(parsed(body, media), kind.where)
    output = bytearray()
    limits = ProgramLimits(READ_S_MAX, OUTPUT_FACTOR * len(body))
    command = (sys.executable, "-m", "forewarn_server.api.file_process", kind.name, media)
    watch = Watch(output=output.extend, stop=abandoned)
    with tempfile.TemporaryFile() as stdin:
        stdin.write(body)
        stdin.seek(0)
        try:
            run_program(command, stdin, limits, watch=watch)
        except ProgramFailed as error:
            if abandoned():
                raise Abandoned from None
            raise FileProcessFailed(problem=error.facts["problem"]) from error
    return _read_output(kind, output)


def _read_output(kind: FileKind, output: bytearray) -> Values:
    """Return the members that a process has printed."""
    members: dict[str, Any] = {}
    for line in io.BytesIO(output):
        checkpoint()
        word, given = json.loads(line)
        if word != "members":
            raise _REFUSALS[word](**given)
        for name, part in kind.form.read_members(given, kind.where).items():
            if isinstance(part, dict):
                members.setdefault(name, {}).update(part)
            elif isinstance(part, tuple):
                members.setdefault(name, []).extend(part)
            else:
                members[name] = part
    return {name: tuple(each) if isinstance(each, list) else each for name, each in members.items()}


def _lines(kind: FileKind, body: bytes, media: str) -> Iterator[str]:
    """Yield what the process prints."""
    try:
        members = parsed(body, media)
        kind.form.read(members, kind.where)
    except CallerError as refusal:
        yield json.dumps([type(refusal).__name__, refusal.facts])
        return
    assert isinstance(members, dict), kind
    for name, member in members.items():
        for part in _parts(member):
            yield json.dumps(["members", {name: part}], ensure_ascii=False)


def _parts(member: object) -> Iterator[object]:
    """Yield a member, or the parts of a list or an object, at least one."""
    if not member or not isinstance(member, dict | list):
        yield member
    elif isinstance(member, list):
        yield from (member[start : start + PART] for start in range(0, len(member), PART))
    else:
        pairs = iter(member.items())
        while part := dict(itertools.islice(pairs, PART)):
            yield part


def main() -> None:
    """Read the file on standard input."""
    give_way()
    name, media = sys.argv[1:]
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    for line in _lines(_KINDS[name], sys.stdin.buffer.read(), media):
        sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()
