"""A real nats-server on loopback for the feed, with the permissions that the manual has."""

import re
import subprocess
from pathlib import Path
from ssl import SSLContext

from forewarn.nats_client import NatsConnection, NatsLogin, connect_nats
from tests.agent.programs import answers, free_port, program
from tests.waiting import wait_until

MANUAL = Path(__file__).parents[2] / "docs/howto/metadata-nodes.md"
CONTROL = "control.example"
PASSWORD = "a-password-of-every-user"


def manual_configuration() -> str:
    """Return the configuration of nats-server in the manual."""
    [text] = re.findall(r"```conf\n(.*?)```", MANUAL.read_text(), re.DOTALL)
    return str(text)


class NatsServer:
    """nats-server as a process that can be killed and come back."""

    def __init__(
        self, folder: Path, more: str = "", *, tls: bool = False, control: str = CONTROL
    ) -> None:
        """Start it with the manual's users; without TLS each has the same password.

        Args:
            folder: where its files are.
            more: further settings; they may bring other users.
            tls: whether certificates prove names.
            control: the user of the control plane.
        """
        self.port = free_port()
        text = manual_configuration().replace("192.0.2.20:4222", f"127.0.0.1:{self.port}")
        text = text.replace(CONTROL, control)
        text = text.replace("/etc/nats", str(folder))
        if not tls:
            text = re.sub(r"tls \{.*?\n\}\n", "", text, flags=re.DOTALL)
            text = re.sub(r'user: "', f'password: "{PASSWORD}", user: "', text)
            tester = f'{{ user: "tester", password: "{PASSWORD}" }}'
            text = text.replace("users = [", f"users = [\n{tester}")
        if "operator:" in more:
            text = re.sub(r"authorization \{.*\n\}\n", "", text, flags=re.DOTALL)
        self._settings = folder / "nats.conf"
        self._settings.write_text(text + more)
        self._log = folder / "nats.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it listens."""
        command = [program("nats-server"), "--config", str(self._settings)]
        with self._log.open("ab") as log:
            process = self._process = subprocess.Popen(command, stdout=log, stderr=log)

        def is_up() -> bool:
            assert process.poll() is None, self._log.read_text()[-2000:]
            return answers(self.port)

        wait_until(is_up, what="nats-server")

    def kill(self) -> None:
        """End it by SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    async def connect(self, user: str, tls: SSLContext | None = None) -> NatsConnection:
        """Connect as one of its users."""
        password = "" if tls else PASSWORD
        file = self._settings.with_name(f"{user}.creds")
        credentials = str(file) if file.exists() else ""
        login = NatsLogin(user, password, credentials_file=credentials, tls=tls)
        return await connect_nats(self.url, login, name=user)
