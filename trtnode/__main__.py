"""``python -m trtnode``: the program where its script is not installed."""

from __future__ import annotations

import sys

from trtnode.serving.cli.program import main

if __name__ == "__main__":
    sys.exit(main())
