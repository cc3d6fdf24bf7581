"""Entry point of `python -m forewarn.agent`."""

import sys

from forewarn.agent.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
