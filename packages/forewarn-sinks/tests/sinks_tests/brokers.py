"""Real brokers for tests: nats-server and Apache Kafka; each may be killed and come back."""

import asyncio
import contextlib
import json
import os
import socket
import ssl
import subprocess
import uuid
from pathlib import Path

import nats
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, TopicAlreadyExistsError
from nats.aio.client import Client
from nats.js.errors import APIError

from tests.agent.programs import free_port, program
from tests.api.live import Json
from tests.e2e.certificates import make_certificates
from tests.waiting import wait_until

STARTS_S_MAX = 90
HERE = "IP:127.0.0.1"
SECRET = "a-secret-of-the-broker"
#: Folder of TEST_PROGRAMS with Kafka's jars, as tools/programs makes it.
JARS = "kafka"


class Broker:
    """A broker as a process that can be killed; what it keeps is on disk."""

    def __init__(self, folder: Path) -> None:
        """Start it."""
        self.folder = folder
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def command(self) -> list[str]:
        """Return how it is started."""
        raise NotImplementedError

    @property
    def options(self) -> dict[str, object]:
        """Return the options of a destination."""
        raise NotImplementedError

    def events(self) -> list[Json]:
        """Return everything that it has, in its order."""
        raise NotImplementedError

    def start(self) -> None:
        """Start it, and wait until it listens."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(self.command(), stdout=log, stderr=log)
        wait_until(self._listens, what="the broker", limit_s=STARTS_S_MAX)

    def kill(self) -> None:
        """End it by SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def _listens(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "log").read_text()[-2000:]
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False


class Nats(Broker):
    """nats-server with JetStream, and one stream."""

    def command(self) -> list[str]:
        """Return how it is started; each message is on disk before it is acknowledged."""
        settings = self.folder / "nats.conf"
        settings.write_text(
            f'listen: "127.0.0.1:{self.port}"\njetstream {{ store_dir: "{self.folder}/js" }}\n'
        )
        return [program("nats-server"), "--config", str(settings)]

    @property
    def servers(self) -> tuple[str, ...]:
        """Its address."""
        return (f"nats://127.0.0.1:{self.port}",)

    @property
    def options(self) -> dict[str, object]:
        """The options of a destination."""
        return {"kind": "nats", "servers": [*self.servers], "timeout_s": 3}

    def prepare(self) -> None:
        """Make the stream."""
        asyncio.run(self._prepare())

    async def client(self) -> Client:
        """Connect to it."""
        return await nats.connect(f"nats://127.0.0.1:{self.port}")

    async def _prepare(self) -> None:
        client = await self.client()
        await client.jetstream().add_stream(name="forewarn", subjects=["forewarn.>"])
        await client.close()

    def events(self) -> list[Json]:
        """Return everything that is in the stream, in its order."""
        return asyncio.run(self._events())

    async def _events(self) -> list[Json]:
        client = await self.client()
        try:
            stream = client.jetstream()
            with contextlib.suppress(APIError):
                state = (await stream.stream_info("forewarn")).state
                return [
                    json.loads((await stream.get_msg("forewarn", seq)).data or b"")
                    for seq in range(state.first_seq, state.last_seq + 1)
                ]
            return []
        finally:
            await client.close()


class SecureNats(Nats):
    """The same with TLS and a token."""

    def command(self) -> list[str]:
        """Return how it is started."""
        words = super().command()
        make_certificates(self.folder, server=HERE)
        settings = Path(words[-1])
        pair = [f'cert_file: "{self.folder}/server.pem"', f'key_file: "{self.folder}/server.key"']
        more = f'tls {{ {", ".join(pair)} }}\nauthorization {{ token: "{SECRET}" }}\n'
        settings.write_text(settings.read_text() + more)
        (self.folder / "secret").write_text(SECRET)
        return words

    @property
    def options(self) -> dict[str, object]:
        """The options of a destination."""
        files = {"ca_file": f"{self.folder}/ca.pem", "token_file": f"{self.folder}/secret"}
        return {**super().options, **files}

    async def client(self) -> Client:
        """Connect to it."""
        trusted = ssl.create_default_context(cafile=self.folder / "ca.pem")
        return await nats.connect(f"tls://127.0.0.1:{self.port}", tls=trusted, token=SECRET)


class Kafka(Broker):
    """One node of Apache Kafka that is its own controller, and one topic."""

    def command(self) -> list[str]:
        """Return how it is started; its storage is formatted the first time."""
        java, jars = program("java"), kafka_jars()
        settings = self.folder / "server.properties"
        classes = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        classes += ["-Djava.net.preferIPv4Stack=true", "-cp", f"{jars}/*"]
        if not settings.exists():
            controller = free_port()
            settings.write_text(
                "process.roles=broker,controller\nnode.id=1\n"
                f"controller.quorum.voters=1@127.0.0.1:{controller}\n"
                f"listeners=PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}\n"
                f"advertised.listeners=PLAINTEXT://127.0.0.1:{self.port}\n"
                "controller.listener.names=CONTROLLER\n"
                "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n"
                f"log.dirs={self.folder}/data\n"
                "log.flush.interval.messages=1\n"
                "offsets.topic.replication.factor=1\n"
                "transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n"
            )
            cluster = uuid.uuid4().hex[:22]
            form = ["format", "-t", cluster, "-c", str(settings), *self.secured(settings)]
            subprocess.run(
                [java, *classes, "kafka.tools.StorageTool", *form], check=True, capture_output=True
            )
        return [java, *classes, "kafka.Kafka", str(settings)]

    def secured(self, _settings: Path) -> list[str]:
        """Add to the settings who may connect; return the words that make the users."""
        return []

    @property
    def options(self) -> dict[str, object]:
        """The options of a destination."""
        return {"kind": "kafka", "brokers": [f"127.0.0.1:{self.port}"], "timeout_s": 5}

    def prepare(self) -> None:
        """Make the topic, once the broker can."""

        def made() -> bool:
            return asyncio.run(self._made())

        wait_until(made, what="the topic", limit_s=STARTS_S_MAX)

    async def _made(self) -> bool:
        admin = AIOKafkaAdminClient(bootstrap_servers=f"127.0.0.1:{self.port}")
        try:
            await admin.start()
            await admin.create_topics([NewTopic("forewarn", 1, 1)])
        except TopicAlreadyExistsError:
            return True
        except KafkaError:
            return False
        finally:
            await admin.close()
        return True

    def events(self) -> list[Json]:
        """Return everything that is in the topic, in its order."""
        return asyncio.run(self._events())

    async def _events(self) -> list[Json]:
        here = TopicPartition("forewarn", 0)
        consumer = AIOKafkaConsumer(
            bootstrap_servers=f"127.0.0.1:{self.port}", enable_auto_commit=False
        )
        await consumer.start()
        try:
            consumer.assign([here])
            end = (await consumer.end_offsets([here]))[here]
            consumer.seek(here, 0)
            found: list[Json] = []
            while await consumer.position(here) < end:
                for messages in (await consumer.getmany(timeout_ms=1000)).values():
                    found += [json.loads(message.value) for message in messages]
            return found
        finally:
            await consumer.stop()


class SecureKafka(Kafka):
    """The same with a listener that takes TLS and SCRAM-SHA-512 alone, for the destination."""

    def secured(self, settings: Path) -> list[str]:
        """Add that listener, and a user."""
        self.secure_port = free_port()
        make_certificates(self.folder, server=HERE)
        pair = self.folder / "pair.pem"
        pair.write_text(
            "".join((self.folder / f"server.{end}").read_text() for end in ("key", "pem"))
        )
        (self.folder / "secret").write_text(SECRET)
        plain, secure = f"127.0.0.1:{self.port}", f"127.0.0.1:{self.secure_port}"
        text = settings.read_text()
        text = text.replace(f"//{plain},", f"//{plain},SASL_SSL://{secure},")
        text = text.replace(f"//{plain}\n", f"//{plain},SASL_SSL://{secure}\n")
        text = text.replace("PLAINTEXT:PLAINTEXT\n", "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL\n")
        module = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        text += (
            "inter.broker.listener.name=PLAINTEXT\n"
            f"ssl.keystore.type=PEM\nssl.keystore.location={pair}\n"
            "sasl.enabled.mechanisms=SCRAM-SHA-512\n"
            f"listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config={module}\n"
        )
        settings.write_text(text)
        return ["--add-scram", f"SCRAM-SHA-512=[name=anna,password={SECRET}]"]

    @property
    def options(self) -> dict[str, object]:
        """The options of a destination."""
        return {
            **super().options,
            "brokers": [f"127.0.0.1:{self.secure_port}"],
            "tls": True,
            "ca_file": f"{self.folder}/ca.pem",
            "user": "anna",
            "password_file": f"{self.folder}/secret",
        }


def kafka_jars() -> Path:
    """Return the folder of Kafka's jars, or skip the test where it is not there."""
    for place in filter(None, os.environ.get("TEST_PROGRAMS", "").split(os.pathsep)):
        if any(Path(place, JARS).glob("kafka_*.jar")):
            return Path(place, JARS)
    pytest.skip("Kafka is not there; tools/programs DIRECTORY kafka fetches it for TEST_PROGRAMS")
