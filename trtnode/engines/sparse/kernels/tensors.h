/* What the operators read from ONNX Runtime: tensors, and sparse matrices with their attributes. */
#pragma once

#include "matrix.h"
#include "onnxruntime.h"

extern Api api;

#define TRY(call)                        \
    do {                                 \
        Status *failed = (call);         \
        if (failed) return failed;       \
    } while (0)

typedef struct {
    const void *data; /* NULL for a tensor that is not given */
    int64_t sizes[8];
    size_t rank, count;
} Tensor;

Status *get_int(const KernelInfo *info, const char *name, int64_t *value);

/* Reads the sizes and the inputs 1 to 4: values, steps, starts, and a bias that may be absent. */
Status *read_matrix(const KernelInfo *info, Sparse *matrix);

/* Reads an input that is an initializer; no data if it isn't given. */
Status *read_constant(const KernelInfo *info, size_t index, Tensor *tensor);

Status *read_input(const KernelContext *context, size_t index, Tensor *tensor);

/* Makes an output of the operator; `out` is NULL where nobody wants it. */
Status *make_output(KernelContext *context, size_t index, const int64_t *sizes, size_t rank, float **out);
