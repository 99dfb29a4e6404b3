/* Custom operators of ONNX Runtime over the sparse kernels: SparseConv and SparseMatMul of the domain trtnode.sparse.

   Inputs: X float; values float, places uint16, starts int32 as in `Sparse`; bias float, optional. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "onnxruntime.h"
#include "panel.h"

#define DOMAIN_NAME "trtnode.sparse"
#define LEAST_ITEMS 4 /* pieces of work that a run is cut into where it can be, for threads to share */

static Api api;

#define TRY(call)                        \
    do {                                 \
        Status *failed = (call);         \
        if (failed) return failed;       \
    } while (0)

typedef struct {
    int is_conv;
    Sparse matrix;
    Source source;
    int64_t pad_end[2];
    const Kernels *kernels;
} Kernel;

static Status *get_int(const KernelInfo *info, const char *name, int64_t *value) {
    return GET_INT(api)(info, name, value);
}

static Status *read_conv(const KernelInfo *info, Kernel *kernel) {
    static const char *const names[][2] = {{"kernel_h", "kernel_w"},     {"stride_h", "stride_w"},
                                           {"dilation_h", "dilation_w"}, {"pad_top", "pad_left"},
                                           {"pad_bottom", "pad_right"}};
    int64_t *const places[] = {kernel->source.kernel, kernel->source.stride, kernel->source.dilation,
                               kernel->source.pad, kernel->pad_end};
    for (int i = 0; i < 5; i++)
        for (int axis = 0; axis < 2; axis++) {
            TRY(get_int(info, names[i][axis], &places[i][axis]));
            if (places[i][axis] < (i < 3)) return CREATE_STATUS(api)(INVALID_ARGUMENT, "a size is negative or zero");
        }
    return NULL;
}

static Status *read_attributes(const KernelInfo *info, Kernel *kernel) {
    int64_t rows, columns, block;
    TRY(get_int(info, "rows", &rows));
    TRY(get_int(info, "columns", &columns));
    TRY(get_int(info, "block", &block));
    TRY(GET_FLOAT(api)(info, "low", &kernel->matrix.low));
    TRY(GET_FLOAT(api)(info, "high", &kernel->matrix.high));
    if ((block != 1 && block != 4 && block != MAX_BLOCK) || rows < 1 || rows % block || columns < 1 ||
        columns > UINT16_MAX + 1)
        return CREATE_STATUS(api)(INVALID_ARGUMENT, "the sizes of a sparse matrix don't fit each other");
    kernel->matrix.rows = rows, kernel->matrix.columns = columns, kernel->matrix.block = block;
    return kernel->is_conv ? read_conv(info, kernel) : NULL;
}

typedef struct {
    const void *data;
    int64_t sizes[8];
    size_t rank, count;
} Tensor;

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

/* Sums and places come from a file: nothing outside the tensors may be read for them. */
static int fits(const Sparse *matrix, const Tensor *values, const Tensor *places, const Tensor *starts,
                const Tensor *bias) {
    size_t block_rows = matrix->rows / matrix->block;
    if (starts->count != block_rows + 1 || values->count != places->count * matrix->block || matrix->starts[0] != 0 ||
        (size_t)matrix->starts[block_rows] != places->count || (bias->data && bias->count != matrix->rows))
        return 0;
    for (size_t row = 0; row < block_rows; row++)
        if (matrix->starts[row] > matrix->starts[row + 1]) return 0;
    size_t most = 0;
    for (size_t i = 0; i < places->count; i++) most = matrix->places[i] > most ? matrix->places[i] : most;
    return places->count == 0 || most < matrix->columns;
}

/* The weights are read once, and must not change: they are initializers, which live as long as the session. */
static Status *read_constant(const KernelInfo *info, size_t index, Tensor *tensor) {
    const Value *value = NULL;
    int is_constant = 0;
    memset(tensor, 0, sizeof *tensor);
    TRY(GET_CONSTANT(api)(info, index, &is_constant, &value));
    return is_constant && value ? read_tensor(value, tensor) : NULL;
}

static Status *read_matrix(const KernelInfo *info, Sparse *matrix) {
    enum { VALUES, PLACES, STARTS, BIAS, TENSORS };
    Tensor tensors[TENSORS];
    for (size_t i = 0; i < TENSORS; i++) TRY(read_constant(info, i + 1, &tensors[i]));
    matrix->values = tensors[VALUES].data, matrix->places = tensors[PLACES].data;
    matrix->starts = tensors[STARTS].data, matrix->bias = tensors[BIAS].data;
    if (!matrix->starts || !fits(matrix, &tensors[VALUES], &tensors[PLACES], &tensors[STARTS], &tensors[BIAS]))
        return CREATE_STATUS(api)(INVALID_ARGUMENT, "the tensors of a sparse matrix don't fit each other");
    return NULL;
}

static Status *create(const Kernel *kind, const KernelInfo *info, void **made) {
    Kernel *kernel = malloc(sizeof *kernel);
    if (!kernel) return CREATE_STATUS(api)(FAIL, "out of memory");
    *kernel = *kind;
    kernel->kernels = best_kernels();
    Status *failed = read_attributes(info, kernel);
    if (!failed) failed = read_matrix(info, &kernel->matrix);
    if (failed)
        free(kernel);
    else
        *made = kernel;
    return failed;
}

/* One product, cut into items: each computes some block rows of one tile. */
typedef struct {
    const Kernels *kernels;
    Sparse matrix;
    Source source;
    float *out;
    size_t row_step, column_step, widest, tiles, groups;
    int out_of_memory;
} Work;

static void compute_item(void *data, size_t item) {
    Work *work = data;
    const size_t block_rows = work->matrix.rows / work->matrix.block, group = item % work->groups;
    const size_t begin = item / work->groups * work->widest, left = work->source.outputs - begin;
    Tile tile = {.first = block_rows * group / work->groups, .last = block_rows * (group + 1) / work->groups};
    tile.used = left < work->widest ? left : work->widest;
    tile.width = (tile.used + work->kernels->lanes - 1) / work->kernels->lanes * work->kernels->lanes;
    if (work->source.is_rows && work->source.outputs == 1) {
        work->kernels->multiply_row(&work->matrix, work->source.x, work->out, tile.first, tile.last);
        return;
    }
    float *panel = thread_memory(work->source.columns * tile.width);
    if (!panel) {
        work->out_of_memory = 1;
        return;
    }
    fill_panel(work->kernels, &work->source, panel, tile.width, begin, tile.used);
    tile.panel = panel, tile.row_step = work->row_step, tile.column_step = work->column_step;
    tile.out = work->out + begin * work->column_step;
    work->kernels->multiply(&work->matrix, &tile);
}

static Status *run(const KernelContext *context, Work *work) {
    const size_t block_rows = work->matrix.rows / work->matrix.block;
    work->widest = work->kernels->lanes * work->kernels->vectors;
    work->tiles = (work->source.outputs + work->widest - 1) / work->widest;
    work->groups = work->tiles >= LEAST_ITEMS ? 1 : (LEAST_ITEMS + work->tiles - 1) / work->tiles;
    if (work->groups > block_rows) work->groups = block_rows;
    TRY(PARALLEL_FOR(api)(context, compute_item, work->tiles * work->groups, 0, work));
    return work->out_of_memory ? CREATE_STATUS(api)(FAIL, "out of memory for a panel") : NULL;
}

static int64_t out_size(const Kernel *kernel, int axis, int64_t size) {
    const Source *s = &kernel->source;
    int64_t reach = s->dilation[axis] * (s->kernel[axis] - 1) + 1;
    int64_t room = size + s->pad[axis] + kernel->pad_end[axis] - reach;
    return room < 0 ? 0 : room / s->stride[axis] + 1;
}

static Status *make_output(KernelContext *context, const int64_t *sizes, size_t rank, float **out) {
    Value *value = NULL;
    TRY(GET_OUTPUT(api)(context, 0, sizes, rank, &value));
    return GET_DATA(api)(value, (void **)out);
}

static Status *compute_conv(const Kernel *kernel, KernelContext *context, Work *work, const Tensor *x) {
    size_t positions = kernel->source.kernel[0] * kernel->source.kernel[1];
    if (x->rank != 4 || x->sizes[1] * positions != kernel->matrix.columns)
        return CREATE_STATUS(api)(INVALID_ARGUMENT, "SparseConv: X has another shape than its weights are for");
    int64_t sizes[4] = {x->sizes[0], kernel->matrix.rows};
    for (int axis = 0; axis < 2; axis++) {
        work->source.size[axis] = x->sizes[2 + axis];
        sizes[2 + axis] = work->source.out_size[axis] = out_size(kernel, axis, x->sizes[2 + axis]);
    }
    float *out;
    TRY(make_output(context, sizes, 4, &out));
    work->source.outputs = work->row_step = sizes[2] * sizes[3];
    work->source.columns = kernel->matrix.columns, work->column_step = 1;
    for (int64_t image = 0; image < sizes[0] && work->source.outputs; image++) {
        work->source.x = (const float *)x->data + image * x->sizes[1] * x->sizes[2] * x->sizes[3];
        work->out = out + image * kernel->matrix.rows * work->source.outputs;
        TRY(run(context, work));
    }
    return NULL;
}

static Status *compute_matmul(const Kernel *kernel, KernelContext *context, Work *work, const Tensor *x) {
    if (x->rank < 1 || (size_t)x->sizes[x->rank - 1] != kernel->matrix.columns)
        return CREATE_STATUS(api)(INVALID_ARGUMENT, "SparseMatMul: X has another shape than its weights are for");
    int64_t sizes[8];
    memcpy(sizes, x->sizes, sizeof sizes);
    sizes[x->rank - 1] = kernel->matrix.rows;
    TRY(make_output(context, sizes, x->rank, &work->out));
    work->source.is_rows = 1, work->source.x = x->data;
    work->source.columns = kernel->matrix.columns, work->source.outputs = x->count / kernel->matrix.columns;
    work->row_step = 1, work->column_step = kernel->matrix.rows;
    return work->source.outputs ? run(context, work) : NULL;
}

static Status *compute(void *made, KernelContext *context) {
    const Kernel *kernel = made;
    Work work = {.kernels = kernel->kernels, .matrix = kernel->matrix, .source = kernel->source};
    const Value *value = NULL;
    Tensor x;
    TRY(GET_INPUT(api)(context, 0, &value));
    TRY(read_tensor(value, &x));
    return (kernel->is_conv ? compute_conv : compute_matmul)(kernel, context, &work, &x);
}

static const Kernel CONV = {.is_conv = 1}, MATMUL = {.is_conv = 0};

static const char *conv_name(const CustomOp *op) { return (void)op, "SparseConv"; }
static const char *matmul_name(const CustomOp *op) { return (void)op, "SparseMatMul"; }
static Status *create_conv(const CustomOp *op, Api given, const KernelInfo *info, void **made) {
    return (void)op, (void)given, create(&CONV, info, made);
}
static Status *create_matmul(const CustomOp *op, Api given, const KernelInfo *info, void **made) {
    return (void)op, (void)given, create(&MATMUL, info, made);
}
static const char *no_provider(const CustomOp *op) { return (void)op, NULL; }
static int input_type(const CustomOp *op, size_t index) {
    static const int types[] = {ELEMENT_FLOAT, ELEMENT_FLOAT, ELEMENT_UINT16, ELEMENT_INT32, ELEMENT_FLOAT};
    return (void)op, types[index];
}
static size_t input_count(const CustomOp *op) { return (void)op, 5; }
static int output_type(const CustomOp *op, size_t index) { return (void)op, (void)index, ELEMENT_FLOAT; }
static size_t output_count(const CustomOp *op) { return (void)op, 1; }
static int input_need(const CustomOp *op, size_t index) {
    return (void)op, index == 4 ? INPUT_OPTIONAL : INPUT_REQUIRED;
}
static int output_need(const CustomOp *op, size_t index) { return (void)op, (void)index, INPUT_REQUIRED; }
static int input_memory(const CustomOp *op, size_t index) { return (void)op, (void)index, 0; }
static int one(const CustomOp *op) { return (void)op, 1; }
static int any_version(const CustomOp *op) { return (void)op, INT32_MAX; }

#define OPERATOR(prefix)                                                                                       \
    {.version = API_VERSION, .get_name = prefix##_name, .get_provider = no_provider,                           \
     .get_input_type = input_type, .get_input_count = input_count, .get_output_type = output_type,             \
     .get_output_count = output_count, .destroy = free, .get_input_need = input_need,                          \
     .get_output_need = output_need, .get_input_memory = input_memory, .get_least_inputs = one,                \
     .get_inputs_alike = one, .get_least_outputs = one, .get_outputs_alike = one,                              \
     .create_kernel_v2 = create_##prefix, .compute_v2 = compute, .get_first_version = one,                     \
     .get_last_version = any_version}

static const CustomOp OPERATORS[] = {OPERATOR(conv), OPERATOR(matmul)};

/* Tries the first and the last place of `OrtApi` that is used, by what they answer to what they must refuse. */
static int has_slots(void) {
    Status *made = CREATE_STATUS(api)(INVALID_ARGUMENT, "probe");
    int is_status = made && GET_ERROR_CODE(api)(made) == INVALID_ARGUMENT;
    if (made) RELEASE_STATUS(api)(made);
    Status *refused = is_status ? PARALLEL_FOR(api)(NULL, NULL, 0, 0, NULL) : NULL;
    if (refused) RELEASE_STATUS(api)(refused);
    return refused != NULL;
}

/* The name of the instructions that the kernels use here. */
__attribute__((visibility("default"))) const char *trtnode_sparse_instructions(void) { return best_kernels()->name; }

/* What ONNX Runtime calls when a session registers this library. */
__attribute__((visibility("default"))) Status *RegisterCustomOps(SessionOptions *options, const ApiBase *base) {
    static OpDomain *domain;
    api = base->get_api(API_VERSION);
    if (!api) return NULL; /* older than the interface; the session then says that it lacks the operators */
    if (!has_slots()) return CREATE_STATUS(api)(FAIL, "this ONNX Runtime has another C interface than expected");
    if (!domain) {
        TRY(CREATE_DOMAIN(api)(DOMAIN_NAME, &domain));
        for (size_t i = 0; i < sizeof OPERATORS / sizeof *OPERATORS; i++) TRY(ADD_OP(api)(domain, &OPERATORS[i]));
    }
    return ADD_DOMAIN(api)(options, domain);
}
