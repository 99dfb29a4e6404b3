/* The products of sparse layers: SparseConv and SparseMatMul. */
#include <stdlib.h>
#include <string.h>

#include "convolution.h"
#include "panel.h"

typedef struct {
    int is_conv;
    Sparse matrix;
    Geometry geometry;
    const Kernels *kernels;
} Kernel;

static Status *create(const Kernel *kind, const KernelInfo *info, void **made) {
    Kernel *kernel = malloc(sizeof *kernel);
    if (!kernel) return CREATE_STATUS(api)(FAIL, "out of memory");
    *kernel = *kind;
    kernel->kernels = best_kernels();
    Status *failed = read_matrix(info, &kernel->matrix);
    if (!failed && kernel->matrix.is_patched)
        failed = CREATE_STATUS(api)(INVALID_ARGUMENT, "only recurrences take patched weights");
    if (!failed && kernel->is_conv) failed = read_geometry(info, &kernel->geometry);
    if (failed)
        free(kernel);
    else
        *made = kernel;
    return failed;
}

#define PANEL_BYTES (64 * 1024) /* that tiles of few lines read: rows of blocks come back to them before they leave the caches */

/* One product, cut into items: each computes some block rows of one tile of columns. */
typedef struct {
    const Kernels *kernels;
    Sparse matrix;
    Source source;
    float *out;
    size_t row_step, column_step, vectors, tiles, groups;
    int out_of_memory;
} Work;

/* The columns of a tile. Tiles are as wide as each other, give or take a vector. */
static Tile tile_of(const Work *work, size_t index, size_t *begin) {
    const size_t block_rows = work->matrix.rows / work->matrix.block, group = index % work->groups;
    const size_t number = index / work->groups, lanes = work->kernels->lanes;
    const size_t first = work->vectors * number / work->tiles, last = work->vectors * (number + 1) / work->tiles;
    Tile tile = {.row_step = work->row_step, .column_step = work->column_step, .width = (last - first) * lanes};
    *begin = first * lanes;
    tile.used = work->source.outputs - *begin < tile.width ? work->source.outputs - *begin : tile.width;
    tile.first = block_rows * group / work->groups, tile.last = block_rows * (group + 1) / work->groups;
    tile.out = work->out + tile.first * work->matrix.block * work->row_step + *begin * work->column_step;
    return tile;
}

/* Whether a tile's lines are read where they are. Vectors that straddle cache lines take two loads, so they are copied,
   unless few rows would read the copy. */
static int is_read_in_place(const Work *work, const Tile *tile) {
    const Sparse *matrix = &work->matrix;
    const size_t rows = matrix->rows / matrix->block, blocks = matrix->starts[rows] / work->groups;
    if (!is_pointwise(&work->source) || tile->used < tile->width) return 0;
    return work->source.outputs % work->kernels->lanes == 0 || blocks < 8 * matrix->columns;
}

static void compute_item(void *data, size_t item) {
    Work *work = data;
    size_t begin;
    Tile tile = tile_of(work, item, &begin);
    if (work->source.is_rows && work->source.outputs == 1) {
        work->kernels->multiply_row(&work->matrix, work->source.x, work->out, tile.first, tile.last);
        return;
    }
    if (is_read_in_place(work, &tile)) {
        tile.panel = work->source.x + begin, tile.step = work->source.outputs;
    } else {
        float *panel = thread_memory(work->source.columns * tile.width);
        if (!panel) {
            work->out_of_memory = 1;
            return;
        }
        fill_panel(work->kernels, &work->source, panel, tile.width, begin, tile.used);
        tile.panel = panel, tile.step = tile.width;
    }
    work->kernels->multiply(&work->matrix, &tile);
}

static Status *run(const KernelContext *context, Work *work) {
    const size_t block_rows = work->matrix.rows / work->matrix.block, vectors = work->kernels->vectors;
    const size_t pieces = PANEL_BYTES / (work->source.columns * vectors * work->kernels->lanes * sizeof(float));
    const size_t most = pieces ? pieces * vectors : vectors;
    work->vectors = (work->source.outputs + work->kernels->lanes - 1) / work->kernels->lanes;
    work->tiles = (work->vectors + most - 1) / most;
    const int is_aligned = is_pointwise(&work->source) && work->source.outputs % work->kernels->lanes == 0;
    const size_t least = is_aligned ? MAX_ITEMS : MAX_ITEMS / 4; /* others fill a panel for each item */
    work->groups = work->tiles >= least ? 1 : (least + work->tiles - 1) / work->tiles;
    if (work->groups > block_rows) work->groups = block_rows;
    TRY(PARALLEL_FOR(api)(context, compute_item, work->tiles * work->groups, 0, work));
    return work->out_of_memory ? CREATE_STATUS(api)(FAIL, "out of memory for a panel") : NULL;
}

static Status *compute_conv(const Kernel *kernel, KernelContext *context, Work *work, const Tensor *x) {
    size_t positions = kernel->geometry.kernel[0] * kernel->geometry.kernel[1];
    if (x->rank != 4 || x->sizes[1] * positions != kernel->matrix.columns)
        return CREATE_STATUS(api)(INVALID_ARGUMENT, "SparseConv: X has another shape than its weights are for");
    int64_t sizes[4] = {x->sizes[0], kernel->matrix.rows};
    for (int axis = 0; axis < 2; axis++) {
        work->source.size[axis] = x->sizes[2 + axis];
        sizes[2 + axis] = work->source.out_size[axis] = out_size(&kernel->geometry, axis, x->sizes[2 + axis]);
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

Status *compute_product(void *made, KernelContext *context) {
    const Kernel *kernel = made;
    Work work = {.kernels = kernel->kernels, .matrix = kernel->matrix, .source = {.geometry = kernel->geometry}};
    Tensor x;
    TRY(read_input(context, 0, &x));
    return (kernel->is_conv ? compute_conv : compute_matmul)(kernel, context, &work, &x);
}

static const Kernel CONV = {.is_conv = 1}, MATMUL = {.is_conv = 0};

Status *create_conv(const KernelInfo *info, void **made) { return create(&CONV, info, made); }
Status *create_matmul(const KernelInfo *info, void **made) { return create(&MATMUL, info, made); }

