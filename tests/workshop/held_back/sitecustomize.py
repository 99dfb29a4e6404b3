"""Holds ONNX Runtime back to a lesser processor in every Python process that has this folder on its path.

OpenVINO obeys ONEDNN_MAX_CPU_ISA; ONNX Runtime has no such switch, and asks the processor with CPUID. Of a copy of its
library in memory, the instructions that ask for the features of leaf 7 (AVX-512, VNNI, AMX) are made illegal. The
handler of that signal asks the processor, and leaves out what the variable forbids.
"""

from __future__ import annotations

import ctypes
import importlib.machinery
import importlib.util
import mmap
import os
import pathlib
import platform
import re
import signal
import sys
from collections.abc import Mapping
from typing import Any

LIBRARY = "onnxruntime.capi.onnxruntime_pybind11_state"

DOT_PRODUCTS = {(7, 0): (0, 0, 1 << 11, 0x3C0000C), (7, 1): (0xA00030, 0, 0, 0x430)}
"""Bits of EAX, EBX, ECX and EDX by leaf and subleaf: VNNI, AMX and what came after."""

HIDDEN: Mapping[str, Mapping[tuple[int, int], tuple[int, ...]]] = {
    "AVX512_CORE": DOT_PRODUCTS,
    "AVX2": {**DOT_PRODUCTS, (7, 0): (0, 0xDC230000, 0x5842, 0x3C0010C)},
}
"""Bits to leave out, by value of ONEDNN_MAX_CPU_ISA."""

CPUID, ILLEGAL = b"\x0f\xa2", b"\x0f\x0b"
ASKS_FOR_LEAF_7 = b"\xb8\x07\x00\x00\x00"
"""``mov eax, 7`` or ``mov r8d, 7``, a few instructions before."""

CALL_CPUID = bytes.fromhex("53 89f8 89f1 4989d0 0fa2 418900 41895804 41894808 4189500c 5b c3")
"""Machine code of ``void cpuid(uint32_t leaf, uint32_t subleaf, uint32_t registers[4])``."""

REGISTERS, RAX, RBX, RCX, RDX, RIP = 40, 13, 11, 14, 12, 16
"""Offset of the registers in Linux's ``ucontext_t``, and their order."""

SA_SIGINFO, SA_NODEFER = 4, 0x40000000


class _Action(ctypes.Structure):
    _fields_ = [
        *[("handler", ctypes.c_void_p), ("mask", ctypes.c_ulong * 16)],
        *[("flags", ctypes.c_int), ("restorer", ctypes.c_void_p)],
    ]


class _Finder:
    """Imports ONNX Runtime's library from a copy in memory."""

    def __init__(self, hidden: Mapping[tuple[int, int], tuple[int, ...]]) -> None:
        self._hidden = hidden
        self._code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        self._code.write(CALL_CPUID)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._code))
        self._cpuid = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p)(address)
        self._handler = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(self._answer)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name != LIBRARY:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        assert spec is not None
        assert spec.origin is not None
        data = bytearray(pathlib.Path(spec.origin).read_bytes())
        places = [m.start() for m in re.finditer(re.escape(CPUID), data)]
        places = [place for place in places if ASKS_FOR_LEAF_7 in data[place - 24 : place]]
        assert places, "this build of ONNX Runtime asks for the processor's features in another way"
        for place in places:
            data[place : place + 2] = ILLEGAL
        action = _Action(ctypes.cast(self._handler, ctypes.c_void_p), flags=SA_SIGINFO | SA_NODEFER)
        assert ctypes.CDLL(None).sigaction(signal.SIGILL, ctypes.byref(action), None) == 0
        copy = os.memfd_create("onnxruntime")
        with os.fdopen(os.dup(copy), "wb") as file:
            file.write(data)
        loader = importlib.machinery.ExtensionFileLoader(name, f"/proc/self/fd/{copy}")
        return importlib.util.spec_from_file_location(name, loader.path, loader=loader)

    def _answer(self, number: int, info: int, context: int) -> None:
        registers = ctypes.cast(context + REGISTERS, ctypes.POINTER(ctypes.c_uint64))
        asked = (registers[RAX] & 0xFFFFFFFF, registers[RCX] & 0xFFFFFFFF)
        answer = (ctypes.c_uint32 * 4)()
        self._cpuid(*asked, ctypes.addressof(answer))
        hidden = self._hidden.get(asked, (0, 0, 0, 0))
        for register, value, without in zip((RAX, RBX, RCX, RDX), answer, hidden, strict=True):
            registers[register] = value & ~without & 0xFFFFFFFF
        registers[RIP] += len(CPUID)


if platform.machine() == "x86_64" and os.environ.get("ONEDNN_MAX_CPU_ISA") in HIDDEN:
    sys.meta_path.insert(0, _Finder(HIDDEN[os.environ["ONEDNN_MAX_CPU_ISA"]]))
