"""Three control planes with keepalived; run by `test_keepalived` in namespaces of its own."""

import signal
import sys
import tempfile
from pathlib import Path

from tests.chaos.__main__ import enter_namespaces
from tests.chaos.http_call import ask
from tests.chaos.scene import ADDRESSES, PLANES, Program, Scene
from tests.chaos.test_keepalived import recipe
from tests.e2e.cloud import run
from tests.waiting import wait_until

VIRTUAL = "169.254.169.254"
PATH = "/metadata/scheduledevents?api-version=2020-07-01&vm=lone_0"
MOVED_S_MAX = 30.0


def keepalived(scene: Scene, name: str) -> Program:
    """Return keepalived on the machine of a control plane, as the how-to has it."""
    text = recipe()
    others = [each for each in PLANES if each != name]
    for written, machine in zip(
        ("192.0.2.11", "192.0.2.12", "192.0.2.13"), [name, *others], strict=True
    ):
        text = text.replace(written, ADDRESSES[machine])
    config = scene.directory / f"{name}.keepalived"
    config.write_text("global_defs {\n    script_user nobody\n}\n" + text)
    words = ["keepalived", "--dont-fork", "--log-console", "--vrrp", "--use-file", str(config)]
    words += ["--pid", f"{config}.pid", "--vrrp_pid", f"{config}.vrrp"]
    return Program(name, words, scene.directory / f"{name}-keepalived.log")


def answered() -> bool:
    """Whether a VM is answered at the virtual address."""
    return ask(VIRTUAL, 80, "GET", PATH, limit_s=1)[0] == 200


def main() -> int:
    """Move the address twice."""
    enter_namespaces()
    directory = Path(tempfile.mkdtemp(prefix="forewarn-chaos-"))
    run("mount", "-t", "tmpfs", "-o", "mode=755", "none", str(directory))
    scene = Scene(directory, "single", nodes=(), metadata="0.0.0.0")
    try:
        scene.start()
        run("ip", "route", "add", VIRTUAL, "dev", "sw")
        for name in PLANES:
            keepalived(scene, name).start()
        wait_until(answered, what="the virtual address", limit_s=MOVED_S_MAX, every_s=0.1)
        for sign in (signal.SIGTERM, signal.SIGKILL):
            before = scene.leader()
            scene.planes[before].signal(sign)
            moved = lambda was=before: scene.leader() not in {"", was} and answered()  # noqa: E731
            wait_until(
                moved, what=f"the address after {sign.name}", limit_s=MOVED_S_MAX, every_s=0.1
            )
    except AssertionError:
        for log in directory.glob("*keepalived.log"):
            print(log.name, log.read_text())
        raise
    finally:
        scene.stop()
        run("umount", "--recursive", "--lazy", str(directory))
        directory.rmdir()
    return 0


if __name__ == "__main__":
    sys.exit(main())
