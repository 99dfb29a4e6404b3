"""Other kernels than the installed ones: ``make sanitize`` gives a library that checks itself."""

from __future__ import annotations

import os
import pathlib

from trtnode.engines.sparse import library

if given := os.environ.get("TRTNODE_TEST_KERNELS"):
    library.LIBRARY = pathlib.Path(given).resolve()
