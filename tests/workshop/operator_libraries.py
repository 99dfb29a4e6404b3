"""Compiles small libraries of custom operators for ONNX Runtime, right ones and broken ones."""

from __future__ import annotations

import pathlib
import shutil
import subprocess

import pytest

import trtnode.engines.sparse

HEADERS = pathlib.Path(trtnode.engines.sparse.__file__).parent / "kernels"

DOMAIN = ', "test.operators": 1'
"""The opset import of models that use ``Scale``."""

SCALE = """
#include <stdlib.h>
#include "onnxruntime.h"
static Api api;
static const char *name(const CustomOp *op) { return "Scale"; }
static const char *provider(const CustomOp *op) { return NULL; }
static int type(const CustomOp *op, size_t index) { return ELEMENT_FLOAT; }
static size_t one_of(const CustomOp *op) { return 1; }
static int zero(const CustomOp *op, size_t index) { return 0; }
static int one(const CustomOp *op) { return 1; }
static int any(const CustomOp *op) { return INT32_MAX; }
static Status *make(const CustomOp *op, Api given, const KernelInfo *info, void **made) {
    *made = malloc(1);
    return NULL;
}
static Status *compute(void *kernel, KernelContext *context) {
    const Value *x;
    Value *y;
    ShapeInfo *info;
    size_t rank, elements = 1;
    int64_t sizes[8];
    float *from, *to;
    GET_INPUT(api)(context, 0, &x);
    GET_SHAPE_INFO(api)(x, &info);
    GET_RANK(api)(info, &rank);
    GET_SIZES(api)(info, sizes, rank);
    RELEASE_SHAPE_INFO(api)(info);
    GET_OUTPUT(api)(context, 0, sizes, rank, &y);
    GET_DATA(api)((Value *)x, (void **)&from);
    GET_DATA(api)(y, (void **)&to);
    for (size_t i = 0; i < rank; i++) elements *= sizes[i];
    for (size_t i = 0; i < elements; i++) to[i] = FACTOR * from[i];
    return NULL;
}
static const CustomOp scale = {
    .version = API_VERSION, .get_name = name, .get_provider = provider, .get_input_type = type,
    .get_input_count = one_of, .get_output_type = type, .get_output_count = one_of, .destroy = free,
    .get_input_need = zero, .get_output_need = zero, .get_input_memory = zero, .get_least_inputs = one,
    .get_inputs_alike = one, .get_least_outputs = one, .get_outputs_alike = one, .create_kernel_v2 = make,
    .compute_v2 = compute, .get_first_version = one, .get_last_version = any};
Status *RegisterCustomOps(SessionOptions *options, const ApiBase *base) {
    OpDomain *domain;
    api = base->get_api(API_VERSION);
    CREATE_DOMAIN(api)("test.operators", &domain);
    ADD_OP(api)(domain, &scale);
    return ADD_DOMAIN(api)(options, domain);
}
"""

CRASHES = "#include <stdlib.h>\nvoid *RegisterCustomOps(void *options, void *base) { abort(); }"
REGISTERS_NOTHING = "int other;"
OF_ANOTHER_PROCESSOR = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\x00\xf3\x00" + bytes(2000)
"""The header of a shared library for RISC-V."""


def compile_library(path: pathlib.Path, source: str, factor: float = 2) -> pathlib.Path:
    """Compile a library, or skip the test where there is no compiler."""
    if shutil.which("gcc") is None:
        pytest.skip("no C compiler for a library of custom operators")
    flags = ["-shared", "-fPIC", "-w", f"-DFACTOR={factor}", f"-I{HEADERS}", "-x", "c", "-o", str(path), "-"]
    subprocess.run(["gcc", *flags], input=source.encode(), check=True)
    return path


def broken_libraries(folder: pathlib.Path) -> dict[pathlib.Path, str]:
    """Write files that are no libraries of custom operators, with what is said of each."""
    (folder / "text.so").write_text("no library")
    (folder / "other.so").write_bytes(OF_ANOTHER_PROCESSOR)
    return {
        folder / "absent.so": "can't be read (No such file or directory)",
        folder: "is no file",
        folder / "text.so": "is no shared library for this machine's processor",
        folder / "other.so": "is no shared library for this machine's processor",
        compile_library(folder / "nothing.so", REGISTERS_NOTHING): "undefined symbol: RegisterCustomOps",
        compile_library(folder / "crashes.so", CRASHES): "ends the process that loads it (",
    }
