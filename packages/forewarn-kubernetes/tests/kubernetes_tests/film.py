"""The tutorial of a node pool, its own commands run one after another: `make demo-kubernetes`.

The control plane is Kubernetes' own; the scheduler and the kubelets are played.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from html import escape
from pathlib import Path
from textwrap import wrap

from kubernetes_tests.node_pool import Kubelets, add_node
from tests.agent.programs import free_port, running
from tests.agent.test_prepare_kubernetes import Cluster, serving
from tests.kubernetes.control_plane import control_plane
from tests.waiting import LIMIT_S, wait_until

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs" / "tutorial" / "node-pool.md"
NODES = ("node-1", "node-2", "node-3")
#: What runs in terminals of its own -> what it prints once it is ready.
TERMINALS = {
    "kubectl proxy": "Starting to serve",
    "forewarn emulate": "127.0.0.1",
    "forewarn agent run": "action=",
}
ONCE = ". .venv/bin/activate"
#: Longest a command may take, in seconds.
STEP_S = 180
#: The picture: characters of a line, lines, their height, and how long a scene stays, in seconds.
WIDTH, LINES_MAX, LINE_HEIGHT, SCENE_S = 118, 16, 19, 3.5
#: The scene that shows where nothing moves.
POSTER = 9


def blocks(language: str = "") -> list[str]:
    """Return the tutorial's blocks of a language, in their order."""
    pattern = r"^```(\w*)\n(.*?)^```$"
    found = re.findall(pattern, PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    return [text for kind, text in found if kind == language]


class Film:
    """A reader of the tutorial."""

    def __init__(self, cluster: Cluster, directory: Path, say: Callable[[str], None]) -> None:
        """Use ports that nobody else uses."""
        self._directory = directory
        self._say = say
        self._ports = {"8001": free_port(), "8169": free_port(), "8470": free_port()}
        self._env = {
            **os.environ,
            "KUBECONFIG": str(cluster.parts.kubeconfig()),
            "FOREWARN_SERVER": f"http://127.0.0.1:{self._ports['8470']}",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(sys.path),
        }

    def play(self) -> None:
        """Do what the tutorial says."""
        [config] = blocks("toml")
        (self._directory / "node-agent.toml").write_text(self._here(config))
        with ExitStack() as terminals:
            for block in blocks():
                for line in block.splitlines():
                    ready = next(
                        (TERMINALS[each] for each in TERMINALS if line.startswith(each)), ""
                    )
                    if line == ONCE:
                        continue
                    self._say(f"\n$ {line}")
                    if ready:
                        self._start(terminals, line, ready)
                    else:
                        self._say(self._run(line).rstrip())

    def _here(self, text: str) -> str:
        """Return a text with this reader's ports."""
        for known, own in self._ports.items():
            text = text.replace(known, str(own))
        return text

    def _start(self, terminals: ExitStack, line: str, ready: str) -> None:
        words = self._here(line).split()
        log = self._directory / f"{words[0]}-{words[1]}.log"
        if words[1] == "emulate":
            words += [
                f"--listen=127.0.0.1:{self._ports['8169']}",
                f"--operator-listen=127.0.0.1:{self._ports['8470']}",
            ]
        terminals.enter_context(running(*words, log=log, env=self._env))
        wait_until(lambda: ready in log.read_text(), what=line, limit_s=LIMIT_S)

    def _run(self, line: str) -> str:
        done = subprocess.run(
            ("bash", "-c", self._here(line)),
            cwd=self._directory,
            env=self._env,
            capture_output=True,
            text=True,
            timeout=STEP_S,
            check=False,
        )
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        return done.stdout


def in_cluster(directory: Path, say: Callable[[str], None]) -> int:
    """Play the film in a new cluster; return the fewest pods that were ready meanwhile."""
    with control_plane(directory) as parts:
        cluster = serving(parts, directory)
        parts.start_controllers()
        for name in NODES:
            add_node(cluster, name)
        with Kubelets(cluster) as kubelets:
            kubelets.expected["web"] = 4
            Film(cluster, directory, say).play()
        return kubelets.fewest["web"]


def picture(scenes: list[tuple[float, str]]) -> str:
    """Return the scenes as an animated picture; each has the seconds since the first."""
    height = 60 + LINE_HEIGHT * LINES_MAX
    share = 100 / len(scenes)
    styles, groups = [], []
    for number, (at_s, text) in enumerate(scenes):
        begin, end = number * share, (number + 1) * share
        styles.append(
            f"@keyframes s{number}{{0%,{begin:.2f}%{{opacity:0}}{begin + 0.01:.2f}%,{end:.2f}%"
            f"{{opacity:1}}{min(end + 0.01, 100):.2f}%,100%{{opacity:{int(end > 99.99)}}}}}"
            f"#s{number}{{animation:s{number} {SCENE_S * len(scenes):.0f}s step-end infinite}}"
        )
        lines = [part for line in text.splitlines() for part in wrap(line, WIDTH) or [""]]
        spans = "".join(
            f'<text x="16" y="{48 + LINE_HEIGHT * row}"'
            f"{' class=c' if line.startswith('$') else ''}>{escape(line)}</text>"
            for row, line in enumerate(lines[:LINES_MAX])
        ).replace("class=c", 'class="c"')
        clock = f'<text x="{WIDTH * 8 - 40}" y="24" class="t">{at_s:.0f} s</text>'
        poster = "" if number == POSTER else ' opacity="0"'
        groups.append(f'<g id="s{number}"{poster}>{clock}{spans}</g>')
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH * 8 + 32} {height}">\n'
        "<title>A node pool drains itself</title>\n<style>text{font:13px monospace;fill:#dde;"
        "white-space:pre}.c{fill:#8e8;font-weight:bold}.t{fill:#889}\n"
    )
    box = f'<rect width="100%" height="{height}" rx="8" fill="#1b1e27"/>'
    rows = "\n".join(groups)
    return f"{head}{chr(10).join(styles)}</style>\n{box}\n{rows}\n</svg>\n"


def main(*words: str) -> None:
    """Play the film, and print it; with a file, also draw it there."""
    scenes: list[tuple[float, str]] = []

    def say(text: str) -> None:
        print(text, flush=True)
        if text.startswith("\n$"):
            scenes.append((time.monotonic(), text.strip()))
        else:
            scenes[-1] = scenes[-1][0], f"{scenes[-1][1]}\n\n{text}"

    with tempfile.TemporaryDirectory() as directory:
        in_cluster(Path(directory), say)
    begun_s = scenes[0][0]
    print(f"\nThe film took {time.monotonic() - begun_s:.0f} s.")
    for file in words:
        shown = [(at_s - begun_s, text) for at_s, text in scenes]
        Path(file).write_text(picture(shown), "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
