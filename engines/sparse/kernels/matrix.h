/* A sparse matrix times a dense panel. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* A matrix of `rows` × `columns`, of which only blocks of `block` rows × 1 column are kept that hold a non-zero.
   Blocks of one block row lie side by side: those of row r from starts[r] to starts[r + 1]. */
typedef struct {
    size_t rows, columns, block;
    const float *values;    /* `block` of each block */
    const uint16_t *places; /* column of each block */
    const int32_t *starts;  /* rows / block + 1 */
    const float *bias;      /* of each row; NULL for none */
    float low, high;        /* sums are clipped to these */
} Sparse;

/* The product with the panel of one tile: `columns` × `width` values, side by side, where width is at most MAX_WIDTH.
   Writes sums of block rows `first` to `last` to out[row × row_step + column × column_step], for `used` columns. */
typedef struct {
    const float *panel;
    size_t width, used, first, last;
    float *out;
    size_t row_step, column_step;
} Tile;

/* The gates of units `first` to `last` of a recurrence at one step. Gate g of unit u is at g × hidden + u. */
typedef struct {
    size_t hidden, first, last;
    const float *inputs, *sums; /* of each gate: the part of the input, and that of the state */
    const float *before;        /* the state of the step before, of each unit */
    float *cell, *out;          /* of each unit: the cell of an LSTM, which is replaced; the new state, or the reset one */
} Units;

#define MAX_WIDTH 48
#define MAX_BLOCK 8

/* How many columns a tile has, and the functions that fill and compute it, for the best instructions of this processor. */
typedef struct {
    const char *name;
    size_t lanes, vectors; /* floats of a vector register; a tile is as wide as at most so many vectors */
    void (*multiply)(const Sparse *, const Tile *);
    void (*copy_lines)(const float *x, size_t step, size_t lines, float *panel, size_t width, size_t used);
    void (*multiply_row)(const Sparse *, const float *x, float *out, size_t first, size_t last);
    void (*lstm)(const Units *), (*gru)(const Units *), (*gru_linear)(const Units *), (*gru_reset)(const Units *);
} Kernels;

const Kernels *best_kernels(void);
