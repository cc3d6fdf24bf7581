"""The agent's job socket: carries messages between ranks, preparations and the coordinator.

The agent's loop reads and writes without blocking. The acknowledgements are on disk before any
message that follows from them is sent. Source: J-1.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct

from forewarn.agent.jobs.coordinator import Coordinator
from forewarn.agent.jobs.wire import (
    LineInvalid,
    LineReader,
    end_when_silent,
    is_path,
    is_proof,
    line_of,
)
from forewarn.agent.json_fields import FieldInvalid
from forewarn_base.errors import CallerError, reason_of
from forewarn_base.host_port import host_and_port
from forewarn_base.ids import Ids

TYPE_CHECKING = False  # `typing` needs too much memory
if TYPE_CHECKING:
    from forewarn.agent.http_exchange import DescriptorPoll
    from forewarn.agent.jobs.coordinator import Sent
    from forewarn.agent.log import Log
    from forewarn.agent.settings import AgentSettings

CONNECTIONS_MAX = 640  # one job of the largest size, and the preparations
UNPROVEN_MAX = 32  # connections that have not proved their token; the oldest is closed
UNSENT_BYTES_MAX = 64 * 1024  # a receiver that is further behind is disconnected
CHUNK_BYTES = 16 * 1024
STATE_NAME = "jobs.json"
FORM_BYTES_MAX = 4 * 1024 * 1024
WRITE_RETRY_MS = 1000
PEER_CREDENTIALS = struct.Struct("3i")  # process, user and group, as in `struct ucred`
TOKEN_OWNER = "token"  # noqa: S105  the owner of jobs that register over TCP


class JobTokenMissing(CallerError):
    """The job socket is open to other VMs without a token."""

    code = "agent-job-token-missing"
    message = "[jobs] listen = {address!r} is open to other machines without a token."
    advice = "Set [jobs] token_file to a file with a secret that only the jobs' users can read."


class JobServer:
    """The job socket, its connections, and the coordinator."""

    def __init__(self, settings: AgentSettings) -> None:
        """Listen, and read the state of the last agent.

        Raises:
            JobTokenMissing: the socket is open to other machines without a token.
            OSError: the address, the token or the state is unusable.
        """
        self.address = settings.jobs_listen
        self._settings = (settings.jobs_listen, settings.jobs_token_file, settings.state_dir)
        self._path = os.path.join(settings.state_dir, STATE_NAME)  # noqa: PTH118
        self._token = _token(settings)
        self._form = self._read()
        self._listener = _listen(self.address)
        self._open: dict[int, _Line] = {}
        self._core: Coordinator | None = None
        self._log: Log
        self._written = 0
        self._unwritten: list[Sent] = []
        self._write_ms = 0

    def serves(self, settings: AgentSettings) -> bool:
        """Return whether other settings need no other server."""
        wanted = settings.jobs_listen, settings.jobs_token_file, settings.state_dir
        return self._settings == wanted

    def watch(self, poller: DescriptorPoll) -> None:
        """Register the open sockets with the poller."""
        poller.watch(self._listener.fileno())
        for fd, line in self._open.items():
            poller.watch(fd, write=bool(line.unsent))

    def next_ms(self) -> int | None:
        """Return when to call `serve` even if no socket is ready, ms since the epoch, or None."""
        times = [self._core.next_ms() if self._core is not None else None]
        times.append(self._write_ms if self._unwritten else None)
        return min((time_ms for time_ms in times if time_ms is not None), default=None)

    def serve(self, ready: set[int], now_ms: int, *, log: Log) -> None:
        """Accept, read, decide and write without blocking."""
        self._log = log
        core = self._coordinator(now_ms)
        if self._listener.fileno() in ready:
            self._accept()
        for fd, line in tuple(self._open.items()):
            if fd not in ready or fd not in self._open:
                continue
            try:
                messages = line.advance()
                for message in messages or ():
                    self._handle_line(core, fd, line, message=message, now_ms=now_ms)
                over = messages is None
            except (OSError, LineInvalid):
                over = True
            if over:
                self._close(core, fd, now_ms)
        due_ms = core.next_ms()
        if due_ms is not None and now_ms >= due_ms:
            self._send(core.time_passed(now_ms), now_ms)
        self._send((), now_ms)

    def close(self, *, leave_path: bool = False) -> None:
        """Stop listening; the ranks connect again to the next agent.

        `leave_path` is whether the path of the socket already belongs to that agent.
        """
        self._listener.close()
        for line in self._open.values():
            line.socket.close()
        if is_path(self.address) and not leave_path:
            with contextlib.suppress(OSError):
                os.unlink(self.address)  # noqa: PTH108  `pathlib` is too heavy

    # ---- connections ---------------------------------------------------------------------------

    def _coordinator(self, now_ms: int) -> Coordinator:
        if self._core is None:
            spans_vms = not is_path(self.address)
            try:
                self._core = Coordinator(spans_vms=spans_vms, form=self._form, now_ms=now_ms)
            except FieldInvalid:  # the form of another release; its notices are sent again
                self._core = Coordinator(spans_vms=spans_vms)
            self._form = None
        return self._core

    def _accept(self) -> None:
        try:
            accepted, _ = self._listener.accept()
            accepted.settimeout(0.0)
        except OSError:
            return
        unproven = [fd for fd, line in self._open.items() if not line.proven]
        if len(self._open) >= CONNECTIONS_MAX or len(unproven) >= UNPROVEN_MAX:
            if not unproven:
                accepted.close()
                return
            self._open.pop(unproven[0]).socket.close()
        line = _Line(accepted)
        self._open[accepted.fileno()] = line
        if is_path(self.address):
            user = _user(accepted)
            line.proven, line.owner = True, str(user)
            line.trusted = user in (0, os.geteuid())
        else:
            with contextlib.suppress(OSError):
                end_when_silent(accepted)
            line.nonce = Ids().token("job")
            line.unsent += line_of({"say": "nonce", "nonce": line.nonce})

    def _handle_line(
        self, core: Coordinator, fd: int, line: _Line, *, message: dict[str, object], now_ms: int
    ) -> None:
        if line.proven:
            sent = core.received(fd, message, owner=line.owner, trusted=line.trusted, now_ms=now_ms)
            self._send(sent, now_ms)
            return
        if not is_proof(message.get("proof", ""), self._token, line.nonce):
            raise LineInvalid("the proof is wrong")
        line.proven, line.owner, line.trusted = True, TOKEN_OWNER, True

    def _close(self, core: Coordinator, fd: int, now_ms: int) -> None:
        line = self._open.pop(fd, None)
        if line is not None:
            line.socket.close()
            self._send(core.closed(fd, now_ms), now_ms)

    def _send(self, messages: tuple[Sent, ...], now_ms: int) -> None:
        """Write the durable state if it has changed, then send; without the disk, wait."""
        assert self._core is not None
        self._unwritten += messages
        while self._unwritten and self._is_written(self._core, now_ms):
            fd, message = self._unwritten.pop(0)
            line = self._open.get(fd)
            if line is None:
                continue
            line.unsent += line_of(message)
            if len(line.unsent) > UNSENT_BYTES_MAX:
                line.socket.close()
                del self._open[fd]
                self._unwritten += self._core.closed(fd, now_ms)

    def _is_written(self, core: Coordinator, now_ms: int) -> bool:
        """Write the durable state if it has changed; return whether it is on disk."""
        if core.generation == self._written:
            return True
        if now_ms < self._write_ms:
            return False
        try:
            self._write(core.form())
        except OSError as error:
            self._write_ms = now_ms + WRITE_RETRY_MS
            text = f"{self._path} cannot be written: {reason_of(error)}."
            self._log.once("jobs-unwritten", text, level="error")
            return False
        self._written = core.generation
        self._log.clear("jobs-unwritten")
        return True

    # ---- the disk ------------------------------------------------------------------------------

    def _read(self) -> dict[str, object] | None:
        try:
            with open(self._path, "rb") as file:  # noqa: PTH123  the same
                form = json.loads(file.read(FORM_BYTES_MAX))
        except FileNotFoundError:
            return None
        except ValueError:
            return None
        return form if isinstance(form, dict) else None

    def _write(self, form: dict[str, object]) -> None:
        """Replace the state file, so that it survives a power cut."""
        fresh = f"{self._path}.new"
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            data = json.dumps(form).encode()
            while data:
                data = data[os.write(fd, data) :]
            os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(fresh, self._path)  # noqa: PTH105  the same
        directory = os.open(os.path.dirname(self._path), os.O_RDONLY)  # noqa: PTH120  the same
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


class _Line:
    """One connection: a rank, or a preparation."""

    __slots__ = ("_reader", "nonce", "owner", "proven", "socket", "trusted", "unsent")

    def __init__(self, accepted: socket.socket) -> None:
        self.socket = accepted
        self._reader = LineReader()
        self.unsent = b""
        self.nonce = ""
        self.owner = ""
        self.proven = False
        self.trusted = False

    def advance(self) -> list[dict[str, object]] | None:
        """Write and read without blocking; return the messages, or None at the end.

        Raises:
            LineInvalid: the other side sent no message.
            OSError: the connection has failed.
        """
        if self.unsent:
            with contextlib.suppress(BlockingIOError):
                self.unsent = self.unsent[self.socket.send(self.unsent) :]
        try:
            data = self.socket.recv(CHUNK_BYTES)
        except BlockingIOError:
            return []
        return self._reader.feed(data) if data else None


def _token(settings: AgentSettings) -> str:
    if settings.jobs_token_file:
        with open(settings.jobs_token_file, encoding="utf-8") as file:  # noqa: PTH123  the same
            token = file.read(4096).strip()
        if token:
            return token
    if not is_path(settings.jobs_listen):
        raise JobTokenMissing(address=settings.jobs_listen)
    return ""


def _listen(address: str) -> socket.socket:
    if is_path(address):
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(address)  # noqa: PTH108  of an agent that was killed
            listener.bind(address)
            os.chmod(address, 0o666)  # noqa: PTH101, S103  the kernel names each sender's user
            listener.listen(CONNECTIONS_MAX)
        except BaseException:
            listener.close()
            raise
    else:
        place = host_and_port(address)
        family = socket.AF_INET6 if ":" in place[0] else socket.AF_INET
        listener = socket.create_server(place, family=family, backlog=CONNECTIONS_MAX)
    listener.settimeout(0.0)
    return listener


def _user(accepted: socket.socket) -> int:
    """Return the user of the process at the other end of a Unix socket; -1 if unknown."""
    if not hasattr(socket, "SO_PEERCRED"):
        return -1
    data = accepted.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER_CREDENTIALS.size)
    user: int = PEER_CREDENTIALS.unpack(data)[1]
    return user
