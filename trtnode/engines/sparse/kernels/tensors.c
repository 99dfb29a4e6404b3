#include "tensors.h"

#include <string.h>

Api api;

Status *get_int(const KernelInfo *info, const char *name, int64_t *value) {
    return GET_INT(api)(info, name, value);
}

static Status *read_sizes(const KernelInfo *info, Sparse *matrix) {
    int64_t rows, columns, block, is_patched;
    TRY(get_int(info, "rows", &rows));
    TRY(get_int(info, "columns", &columns));
    TRY(get_int(info, "block", &block));
    TRY(get_int(info, "patched", &is_patched));
    TRY(GET_FLOAT(api)(info, "low", &matrix->low));
    TRY(GET_FLOAT(api)(info, "high", &matrix->high));
    if ((block != 1 && block != 4 && block != MAX_BLOCK) || rows < 1 || rows % block || columns < 1 ||
        columns > INT32_MAX || (is_patched && (block != 4 || rows % (4 * PATCH_ROWS) || columns % PATCH_COLUMNS)))
        return CREATE_STATUS(api)(INVALID_ARGUMENT, "the sizes of a sparse matrix don't fit each other");
    matrix->rows = rows, matrix->columns = columns, matrix->block = block, matrix->is_patched = is_patched != 0;
    return NULL;
}

static Status *read_tensor(const Value *value, Tensor *tensor) {
    ShapeInfo *shape = NULL;
    TRY(GET_SHAPE_INFO(api)(value, &shape));
    Status *failed = GET_RANK(api)(shape, &tensor->rank);
    if (!failed && tensor->rank > 8) failed = CREATE_STATUS(api)(INVALID_ARGUMENT, "a tensor has more than 8 axes");
    if (!failed) failed = GET_SIZES(api)(shape, tensor->sizes, tensor->rank);
    RELEASE_SHAPE_INFO(api)(shape);
    if (failed) return failed;
    tensor->count = 1;
    for (size_t axis = 0; axis < tensor->rank; axis++) tensor->count *= tensor->sizes[axis];
    return GET_DATA(api)((Value *)value, (void **)&tensor->data);
}

Status *read_input(const KernelContext *context, size_t index, Tensor *tensor) {
    const Value *value = NULL;
    memset(tensor, 0, sizeof *tensor);
    TRY(GET_INPUT(api)(context, index, &value));
    return value ? read_tensor(value, tensor) : NULL;
}

/* Steps and starts come from a file: nothing outside the tensors may be read for them. */
static int steps_fit(const Sparse *matrix) {
    for (size_t row = 0; row < matrix->rows / matrix->block; row++) {
        size_t column = 0;
        for (int32_t j = matrix->starts[row]; j < matrix->starts[row + 1]; j++) column += matrix->steps[j];
        if (column >= matrix->columns) return 0;
    }
    return 1;
}

static int patches_fit(const Sparse *matrix) {
    const uint8_t *patch = matrix->steps;
    for (size_t row = 0; row < matrix->rows / (4 * PATCH_ROWS); row++) {
        size_t vectors = 0;
        for (size_t column = 0; column < matrix->columns; column += PATCH_COLUMNS) {
            size_t rows = 0, here = 0;
            for (size_t i = 0; i < MOST_VECTORS; i++) rows += patch[i], here += (i + 1) * patch[i];
            vectors += here;
            if (rows > PATCH_ROWS || vectors > (size_t)(matrix->starts[row + 1] - matrix->starts[row])) return 0;
            for (size_t i = 0; i < PATCH_ROWS; i++)
                if (patch[MOST_VECTORS + i] >= PATCH_ROWS) return 0;
            patch += PATCH_HEAD + 4 * here;
        }
        if (vectors != (size_t)(matrix->starts[row + 1] - matrix->starts[row])) return 0;
    }
    return 1;
}

static int fits(const Sparse *matrix, const Tensor *values, const Tensor *steps, const Tensor *starts,
                const Tensor *bias) {
    const size_t patches = matrix->rows / (4 * PATCH_ROWS) * (matrix->columns / PATCH_COLUMNS);
    const size_t count = matrix->is_patched ? matrix->rows / (4 * PATCH_ROWS) : matrix->rows / matrix->block;
    if (starts->count != count + 1 || matrix->starts[0] != 0 || (bias->data && bias->count != matrix->rows)) return 0;
    for (size_t row = 0; row < count; row++)
        if (matrix->starts[row] > matrix->starts[row + 1]) return 0;
    const size_t stored = matrix->starts[count]; /* vectors, or blocks */
    if (matrix->is_patched)
        return values->count == 16 * stored && steps->count == PATCH_HEAD * patches + 4 * stored + SPARE_PLACES &&
               patches_fit(matrix);
    return values->count == stored * matrix->block && steps->count == stored && steps_fit(matrix);
}

/* The weights are read once, and must not change: they are initializers, which live as long as the session. */
Status *read_constant(const KernelInfo *info, size_t index, Tensor *tensor) {
    const Value *value = NULL;
    int is_constant = 0;
    memset(tensor, 0, sizeof *tensor);
    TRY(GET_CONSTANT(api)(info, index, &is_constant, &value));
    return is_constant && value ? read_tensor(value, tensor) : NULL;
}

Status *read_matrix(const KernelInfo *info, Sparse *matrix) {
    enum { VALUES, STEPS, STARTS, BIAS, TENSORS };
    Tensor tensors[TENSORS];
    TRY(read_sizes(info, matrix));
    for (size_t i = 0; i < TENSORS; i++) TRY(read_constant(info, i + 1, &tensors[i]));
    matrix->values = tensors[VALUES].data, matrix->steps = tensors[STEPS].data;
    matrix->starts = tensors[STARTS].data, matrix->bias = tensors[BIAS].data;
    if (!matrix->starts || !fits(matrix, &tensors[VALUES], &tensors[STEPS], &tensors[STARTS], &tensors[BIAS]))
        return CREATE_STATUS(api)(INVALID_ARGUMENT, "the tensors of a sparse matrix don't fit each other");
    return NULL;
}

Status *make_output(KernelContext *context, size_t index, const int64_t *sizes, size_t rank, float **out) {
    Value *value = NULL;
    *out = NULL;
    TRY(GET_OUTPUT(api)(context, index, sizes, rank, &value));
    return value ? GET_DATA(api)(value, (void **)out) : NULL;
}
