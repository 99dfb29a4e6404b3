/* Custom operators of ONNX Runtime over the sparse kernels: SparseConv, SparseMatMul, SparseLSTM and SparseGRU of the domain
   trtnode.sparse.

   Inputs: X float; values float, places uint16, starts int32 as in `Sparse`; bias float, optional; first states. */
#include <stdlib.h>
#include <string.h>

#include "panel.h"
#include "recurrent.h"
#include "tensors.h"

#define DOMAIN_NAME "trtnode.sparse"
#define LEAST_ITEMS 4 /* pieces of work that a run is cut into where it can be, for threads to share */

typedef struct {
    int is_conv;
    Sparse matrix;
    Source source;
    int64_t pad_end[2];
    const Kernels *kernels;
} Kernel;

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

static Status *create(const Kernel *kind, const KernelInfo *info, void **made) {
    Kernel *kernel = malloc(sizeof *kernel);
    if (!kernel) return CREATE_STATUS(api)(FAIL, "out of memory");
    *kernel = *kind;
    kernel->kernels = best_kernels();
    Status *failed = read_matrix(info, &kernel->matrix);
    if (!failed && kernel->is_conv) failed = read_conv(info, kernel);
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
    TRY(make_output(context, 0, sizes, 4, &out));
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
    TRY(make_output(context, 0, sizes, x->rank, &work->out));
    work->source.is_rows = 1, work->source.x = x->data;
    work->source.columns = kernel->matrix.columns, work->source.outputs = x->count / kernel->matrix.columns;
    work->row_step = 1, work->column_step = kernel->matrix.rows;
    return work->source.outputs ? run(context, work) : NULL;
}

static Status *compute(void *made, KernelContext *context) {
    const Kernel *kernel = made;
    Work work = {.kernels = kernel->kernels, .matrix = kernel->matrix, .source = kernel->source};
    Tensor x;
    TRY(read_input(context, 0, &x));
    return (kernel->is_conv ? compute_conv : compute_matmul)(kernel, context, &work, &x);
}

static const Kernel CONV = {.is_conv = 1}, MATMUL = {.is_conv = 0};

static Status *create_conv(const KernelInfo *info, void **made) { return create(&CONV, info, made); }
static Status *create_matmul(const KernelInfo *info, void **made) { return create(&MATMUL, info, made); }

static const char *no_provider(const CustomOp *op) { return (void)op, NULL; }
static int input_type(const CustomOp *op, size_t index) {
    static const int types[] = {ELEMENT_FLOAT, ELEMENT_FLOAT, ELEMENT_UINT16, ELEMENT_INT32};
    return (void)op, index < 4 ? types[index] : ELEMENT_FLOAT;
}
static int output_type(const CustomOp *op, size_t index) { return (void)op, (void)index, ELEMENT_FLOAT; }
static int input_need(const CustomOp *op, size_t index) {
    return (void)op, index < 4 ? INPUT_REQUIRED : INPUT_OPTIONAL;
}
static int input_memory(const CustomOp *op, size_t index) { return (void)op, (void)index, 0; }
static int one(const CustomOp *op) { return (void)op, 1; }
static int any_version(const CustomOp *op) { return (void)op, INT32_MAX; }

/* The outputs of layers are required; those of recurrences are optional, as in ONNX. */
#define OPERATOR(prefix, name, inputs, outputs, need, computed)                                                \
    static const char *prefix##_name(const CustomOp *op) { return (void)op, name; }                            \
    static size_t prefix##_inputs(const CustomOp *op) { return (void)op, inputs; }                             \
    static size_t prefix##_outputs(const CustomOp *op) { return (void)op, outputs; }                           \
    static int prefix##_need(const CustomOp *op, size_t index) { return (void)op, (void)index, need; }         \
    static Status *make_##prefix(const CustomOp *op, Api given, const KernelInfo *info, void **made) {         \
        return (void)op, (void)given, create_##prefix(info, made);                                             \
    }                                                                                                          \
    static const CustomOp prefix##_operator = {                                                                \
        .version = API_VERSION, .get_name = prefix##_name, .get_provider = no_provider,                        \
        .get_input_type = input_type, .get_input_count = prefix##_inputs, .get_output_type = output_type,      \
        .get_output_count = prefix##_outputs, .destroy = free, .get_input_need = input_need,                   \
        .get_output_need = prefix##_need, .get_input_memory = input_memory, .get_least_inputs = one,           \
        .get_inputs_alike = one, .get_least_outputs = one, .get_outputs_alike = one,                           \
        .create_kernel_v2 = make_##prefix, .compute_v2 = computed, .get_first_version = one,                   \
        .get_last_version = any_version};

OPERATOR(conv, "SparseConv", 5, 1, INPUT_REQUIRED, compute)
OPERATOR(matmul, "SparseMatMul", 5, 1, INPUT_REQUIRED, compute)
OPERATOR(lstm_cell, "SparseLSTM", 7, 3, INPUT_OPTIONAL, compute_cell)
OPERATOR(gru_cell, "SparseGRU", 6, 2, INPUT_OPTIONAL, compute_cell)

static const CustomOp *const OPERATORS[] = {&conv_operator, &matmul_operator, &lstm_cell_operator, &gru_cell_operator};

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
        for (size_t i = 0; i < sizeof OPERATORS / sizeof *OPERATORS; i++) TRY(ADD_OP(api)(domain, OPERATORS[i]));
    }
    return ADD_DOMAIN(api)(options, domain);
}
