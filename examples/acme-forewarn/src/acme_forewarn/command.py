"""The command `forewarn acme`: show how often each host was rebooted."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence

from acme_forewarn.platform import Platform


def main(words: Sequence[str]) -> int:
    """Print the reboots of each host, and return the exit status."""
    parser = argparse.ArgumentParser(prog="forewarn acme", description=__doc__)
    parser.add_argument("directory", help="directory of the hypervisors")
    platform = Platform({"directory": parser.parse_args(words).directory})
    count = Counter(line.partition(" ")[0] for line in platform.boots())
    for host in platform.hosts():
        print(f"{host}\t{count[host]}")
    return 0
