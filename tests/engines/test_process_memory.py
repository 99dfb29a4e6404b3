from __future__ import annotations

import subprocess
import sys

BURST = """
import resource
from trtnode.engines.process_memory import keep_free_memory

def faults_of_a_burst():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    tensors = [bytearray(600_000) for _ in range(40)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

keep_free_memory()
print(faults_of_a_burst(), faults_of_a_burst())
"""


def test_memory_of_large_tensors_is_used_again_without_page_faults() -> None:
    done = subprocess.run([sys.executable, "-c", BURST], capture_output=True, text=True, check=True)

    first, second = map(int, done.stdout.split())

    assert second < first / 100
