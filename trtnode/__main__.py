"""``python -m trtnode``: the program where its script is not installed."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    if not sys.flags.safe_path:
        del sys.path[0]  # the current folder: files there may bear the names of libraries
    from trtnode.serving.cli.program import main

    sys.exit(main())
