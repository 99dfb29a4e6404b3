"""One step in its process: prints its result as the last line of stdout."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from scripts.gpu_day import engines, networks, servers
from trtnode.bench.environment import describe_environment
from trtnode.engines.backends.registry import get_backend
from trtnode.engines.cuda.devices import find_gpu

GPU_CHECK = pathlib.Path(__file__).parents[1] / "gpu_check"


def machine(_: pathlib.Path) -> dict[str, Any]:
    """Describe GPU, driver, processor and versions."""
    gpu = find_gpu()
    backend = get_backend("tensorrt")
    return {
        "gpu": gpu and f"{gpu.name} ({gpu.compute_capability})",
        "tensorrt": backend.unavailable_reason() or backend.version(),
        **describe_environment(),
    }


def gpu_check(_: pathlib.Path) -> dict[str, Any]:
    """Run ``scripts/gpu_check``, which also runs the tests that need a GPU."""
    done = subprocess.run([sys.executable, GPU_CHECK], stdout=subprocess.PIPE, text=True, check=False)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


STEPS: dict[str, Callable[..., dict[str, Any]]] = {
    step.__name__: step
    for step in (
        machine,
        gpu_check,
        engines.one_node,
        engines.native_nodes_between,
        engines.two_profiles,
        engines.unknown_size,
        engines.cuda_graphs,
        engines.sign,
        engines.load_signed,
        engines.memory,
        networks.measure,
        servers.serve,
        servers.workers,
    )
}

if __name__ == "__main__":
    folder, name, *arguments = sys.argv[1:]
    print(json.dumps(STEPS[name](pathlib.Path(folder), *arguments)))
