"""The Patroni preparation against real Patroni, PostgreSQL and etcd: two members, one switch."""

import contextlib
import json
import os
import pwd
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn.agent.preparations.http_call import CallFailed, call
from forewarn.agent.preparations.patroni import LEADING
from tests.agent.programs import answers, do, done, free_port, program, running, until

pytestmark = pytest.mark.slow

CONFIG = """
scope: forewarn
name: {name}
restapi: {{listen: "127.0.0.1:{rest}", connect_address: "127.0.0.1:{rest}"}}
etcd3: {{host: "127.0.0.1:{etcd}"}}
bootstrap:
  dcs: {{ttl: 20, loop_wait: 1, retry_timeout: 5, postgresql: {{use_pg_rewind: false}}}}
  initdb: [{{encoding: UTF8}}, {{auth-local: trust}}, {{auth-host: trust}}, no-sync]
  pg_hba: ["host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"]
postgresql:
  listen: "127.0.0.1:{port}"
  connect_address: "127.0.0.1:{port}"
  data_dir: {directory}/{name}
  bin_dir: {bin}
  pgpass: {directory}/pgpass-{name}
  parameters: {{unix_socket_directories: "{directory}", fsync: "off"}}
  authentication:
    superuser: {{username: postgres, password: x}}
    replication: {{username: replicator, password: x}}
"""


class Member:
    """One member of the cluster, as its REST API shows it."""

    def __init__(self, name: str) -> None:
        """Choose its ports."""
        self.name = name
        self.rest, self.port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.rest}"

    def role(self) -> str:
        """Return what it is now; nothing while it does not answer."""
        try:
            form = call("GET", f"{self.url}/patroni").form()
        except CallFailed:
            return ""
        return str(form.get("role", "")) if form.get("state") == "running" else ""

    def follower_streams(self) -> bool:
        """Tell whether the cluster has a follower that could take over."""
        members = json.loads(call("GET", f"{self.url}/cluster").body)["members"]
        return any(
            one["role"] not in ("leader", "master") and one["state"] in ("running", "streaming")
            for one in members
        )


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    """Give a directory of the user that runs PostgreSQL, which root may not.

    Those of pytest will not do: another run of it closes their parents to all other users.
    """
    with tempfile.TemporaryDirectory(prefix="forewarn-patroni-") as path:
        if os.geteuid() == 0:
            os.chown(path, pwd.getpwnam("postgres").pw_uid, -1)
        yield Path(path)


@pytest.fixture(scope="module")
def members(directory: Path) -> Iterator[tuple[Member, Member]]:
    """Run etcd and two members; the first that is given leads."""
    patroni, etcd = program("patroni"), program("etcd")
    postgres = Path(program("initdb")).resolve().parent
    user = directory.stat().st_uid
    client, peer = free_port(), free_port()
    url, peer_url = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
    store = (
        etcd,
        f"--data-dir={directory}/etcd",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        f"--listen-peer-urls={peer_url}",
        f"--initial-advertise-peer-urls={peer_url}",
        f"--initial-cluster=default={peer_url}",
    )
    both = (Member("one"), Member("two"))
    with contextlib.ExitStack() as stack:
        stack.enter_context(running(*store, log=directory / "etcd.log"))
        until(lambda: answers(client), "etcd listens", seconds=60)
        for member in both:
            config = directory / f"{member.name}.yml"
            config.write_text(
                CONFIG.format(
                    name=member.name,
                    rest=member.rest,
                    port=member.port,
                    etcd=client,
                    directory=directory,
                    bin=postgres,
                )
            )
            log = directory / f"{member.name}.log"
            env = {"HOME": str(directory), "PATH": f"/usr/bin:/bin:{postgres}"}
            stack.enter_context(running(patroni, str(config), log=log, user=user, env=env))
        until(lambda: all(member.role() for member in both), "both run", seconds=90)
        leader, follower = sorted(both, key=lambda member: member.role() not in LEADING)
        until(leader.follower_streams, "the other follows", seconds=60)
        yield leader, follower


def test_leader_is_switched_over_and_a_follower_left_alone(
    members: tuple[Member, Member], tmp_path: Path
) -> None:
    """A database fails over before the event, not in it. Source: C-3."""
    one, two = members
    settings = {"address": one.url}
    assert "no switchover is needed" in done(
        "patroni", "prepare", {"address": two.url}, tmp_path / "second"
    )
    assert f"switched over from {one.name} to {two.name}" in done(
        "patroni", "prepare", settings, tmp_path / "first"
    )
    until(lambda: two.role() in LEADING, "the second leads", seconds=60)
    assert "no switchover is needed" in done("patroni", "prepare", settings, tmp_path / "first")
    assert "this member runs" in done("patroni", "recover", settings, tmp_path / "first")


def test_silent_patroni_fails_the_step(tmp_path: Path) -> None:
    """A database of which nothing is known is not prepared."""
    settings = {"address": f"http://127.0.0.1:{free_port()}"}
    assert do("patroni", "prepare", settings, tmp_path / "state", seconds=4).returncode == 1
