from __future__ import annotations

import pathlib
import subprocess
import sys
import uuid

import pytest

from trtnode.engines.cores import find_cores

V1 = "/sys/fs/cgroup/cpu"


class Machine:
    """The files of a process in control groups."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.proc, self.mount = folder / "proc", folder / "cgroup"
        self.proc.mkdir()
        self.mount.mkdir()

    def place(self, groups: str, mounted: str) -> None:
        (self.proc / "cgroup").write_text(groups)
        (self.proc / "mountinfo").write_text(f"22 1 0:5 / /proc rw - proc proc rw\n{mounted}\n")

    def unified(self, group: str, root: str = "/") -> None:
        self.place(f"0::{group}\n", f"30 22 0:26 {root} {self.mount} rw,nosuid shared:4 - cgroup2 cgroup2 rw")

    def write(self, file: str, text: str) -> None:
        path = self.mount / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def machine(tmp_path: pathlib.Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize(
    ("quota", "count"), [("200000 100000", 2), ("150000 100000", 2), ("10000 100000", 1), ("max 100000", 64)]
)
def test_a_quota_is_rounded_up(quota: str, count: int, machine: Machine) -> None:
    machine.unified("/")
    machine.write("cpu.max", quota)

    cores = find_cores(machine.proc, 64)

    assert (cores.count, cores.is_quota) == (count, count < 64)
    assert cores.source == ("affinity" if count == 64 else f"{machine.mount}/cpu.max: {quota}")


def test_the_smallest_quota_of_nested_groups_counts(machine: Machine) -> None:
    machine.unified("/kubepods/pod/container")
    machine.write("kubepods/pod/container/cpu.max", "max 100000")
    machine.write("kubepods/pod/cpu.max", "300000 100000")
    machine.write("kubepods/cpu.max", "800000 100000")

    assert str(find_cores(machine.proc, 64)) == f"3 cores ({machine.mount}/kubepods/pod/cpu.max: 300000 100000)"


def test_an_affinity_below_the_quota_counts(machine: Machine) -> None:
    machine.unified("/")
    machine.write("cpu.max", "400000 100000")

    assert str(find_cores(machine.proc, 2)) == "2 cores (affinity)"


def test_groups_of_version_1_are_read(machine: Machine) -> None:
    mounted = f"40 22 0:30 /docker/box {machine.mount} rw - cgroup cgroup rw,cpu,cpuacct"
    machine.place("9:memory:/docker/box\n4:cpu,cpuacct:/docker/box/inner\n0::/\n", mounted)
    machine.write("cpu.cfs_quota_us", "-1\n")
    machine.write("inner/cpu.cfs_quota_us", "50000\n")
    machine.write("inner/cpu.cfs_period_us", "100000\n")

    cores = find_cores(machine.proc, 8)

    assert str(cores) == f"1 core ({machine.mount}/inner/cpu.cfs_quota_us: 50000 of 100000 us)"


@pytest.mark.parametrize("text", ["", "many few", "1"])
def test_files_that_cant_be_read_limit_nothing(text: str, machine: Machine) -> None:
    machine.unified("/")
    machine.write("cpu.max", text)

    assert find_cores(machine.proc, 4).count == 4
    assert find_cores(machine.proc / "gone", 4).count == 4


def test_threads_of_a_process_follow_the_quota_of_its_group() -> None:
    group = pathlib.Path(V1, f"trtnode-{uuid.uuid4().hex}")
    try:
        group.mkdir()
        (group / "cpu.cfs_quota_us").write_text("100000")
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    code = (
        f"import os, pathlib; pathlib.Path({str(group / 'tasks')!r}).write_text(str(os.getpid()));"
        "from trtnode.engines.onnxruntime.session import new_options; from trtnode.engines.cores import usable_cores;"
        "print(new_options({}).intra_op_num_threads, new_options({}, 3).intra_op_num_threads, usable_cores().count)"
    )
    try:
        told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    finally:
        group.rmdir()

    assert told.split() == ["1", "3", "1"]
