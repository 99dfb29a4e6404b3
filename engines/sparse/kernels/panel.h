/* Panels: what a tile of columns multiplies, gathered side by side. */
#pragma once

#include "matrix.h"

/* A convolution of one image, or rows of a matrix. */
typedef struct {
    const float *x;
    size_t columns;             /* values that each column of the panel holds */
    size_t outputs;             /* columns in all */
    int is_rows;                /* x is `outputs` × `columns`; the following is for images only */
    int64_t size[2], out_size[2], kernel[2], stride[2], dilation[2], pad[2];
} Source;

/* Fills panel[k × width + n] from column `begin` + n of the source, for n < used; the rest is zero. */
void fill_panel(const Kernels *kernels, const Source *source, float *panel, size_t width, size_t begin, size_t used);

/* Memory of this thread for `count` floats, aligned to a cache line; it is freed when the thread ends. NULL if none. */
float *thread_memory(size_t count);
