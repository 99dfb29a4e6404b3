/* A sparse matrix times a dense panel. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* A matrix of `rows` × `columns`, of which only blocks of `block` rows × 1 column are kept that hold a non-zero.
   Blocks of one block row lie side by side: those of row r from starts[r] to starts[r + 1]. A block's column is the sum
   of its step and of those before it in its row. */
typedef struct {
    size_t rows, columns, block;
    const float *values;    /* `block` of each block */
    const uint8_t *steps;   /* columns from the block before to each block; from column 0 to the first one */
    const int32_t *starts;  /* rows / block + 1 */
    const float *bias;      /* of each row; NULL for none */
    float low, high;        /* sums are clipped to these */
    int is_patched;         /* values, steps and starts are those of patches */
} Sparse;

/* A patched matrix is made for products with one column, with a vector's four blocks of four rows at a time. A patch is
   PATCH_ROWS block rows × PATCH_COLUMNS columns. Those side by side are a row of patches: the one of number r has the
   vectors from starts[r] to starts[r + 1]. `steps` holds for each patch
   - how many of its block rows have 1, 2, ... MOST_VECTORS vectors, as a byte each,
   - the block rows in that order, those without a vector at the end, as a byte each,
   - the place of each block: the column in its half of the patch, and SECOND_HALF if that is the second one.
   Blocks of zeros fill a row's last vector. SPARE_PLACES bytes follow the last patch. */
enum {
    PATCH_ROWS = 16,
    PATCH_COLUMNS = 64,
    MOST_VECTORS = PATCH_COLUMNS / 4,
    PATCH_HEAD = MOST_VECTORS + PATCH_ROWS,
    SECOND_HALF = 128,
    SPARE_PLACES = 16,
};

/* The product with the panel of one tile: `columns` lines of `width` values, `step` floats apart, where width is a
   multiple of a vector's floats.
   Writes sums of block rows `first` to `last`, for `used` columns, to out[row × row_step + column × column_step]: rows
   are counted from the first one. */
typedef struct {
    const float *panel;
    size_t width, step, used, first, last;
    float *out;
    size_t row_step, column_step;
} Tile;

/* The gates of units `first` to `last` of a recurrence at one step. */
typedef struct {
    size_t hidden, first, last;
    const float *inputs; /* the input's part: gate g of unit u at g × hidden + u */
    const float *sums;   /* the state's part, at g × sums_step + u - first */
    size_t sums_step;
    const float *before; /* the state of the step before, of each unit */
    float *cell, *out;   /* of each unit: the cell of an LSTM, which is replaced; the new state, or the reset one */
} Units;

#define MAX_SIDE 16 /* of a depthwise kernel; its strides, dilations and pads are no larger either */

typedef struct {
    size_t first, skipped, count; /* columns of one phase: place of the first in a line of the buffer and of the image */
} Phase;

/* A convolution of each channel with a filter of its own, of one image's size. The image is copied to a buffer, with its
   padding; `stride[1]` lines of `pitch` values hold every column of one line whose number leaves the same rest. */
typedef struct {
    size_t size[2], out_size[2], stride[2], pad[2];
    Phase phases[MAX_SIDE]; /* of each of the `stride[1]` lines */
    size_t lines, pitch; /* of the buffer: lines of the padded image; floats from one line to the next */
    size_t taps, offsets[MAX_SIDE * MAX_SIDE]; /* from an output's place in the buffer to what each weight reads */
    int by_fours; /* whether four lines are computed at once: 3 × 3, no dilation, strides 1 or 2, four lines or more */
    float low, high;
} Depthwise;

#define MAX_WIDTH 64 /* floats of the vectors that are summed at once */
#define MAX_BLOCK 8

/* How many columns are summed at once, and what fills and computes a tile, for the best instructions of this processor. */
typedef struct {
    const char *name;
    size_t lanes, vectors; /* floats of a vector register; so many vectors of each row are summed at once */
    void (*multiply)(const Sparse *, const Tile *);
    void (*copy_lines)(const float *x, size_t step, size_t lines, float *panel, size_t width, size_t used);
    void (*multiply_row)(const Sparse *, const float *x, float *out, size_t first, size_t last);
    void (*multiply_patches)(const Sparse *, const float *x, float *out, size_t first, size_t last);
    void (*lstm)(const Units *), (*gru)(const Units *), (*gru_linear)(const Units *), (*gru_reset)(const Units *);
    void (*depthwise)(const Depthwise *, const float *x, const float *weights, float bias, float *buffer, float *out);
} Kernels;

const Kernels *best_kernels(void);
