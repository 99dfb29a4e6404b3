/* Panels: what a tile of columns multiplies, gathered side by side. */
#pragma once

#include "convolution.h"

/* A convolution of one image, or rows of a matrix. */
typedef struct {
    const float *x;
    size_t columns;             /* values that each column of the panel holds */
    size_t outputs;             /* columns in all */
    int is_rows;                /* x is `outputs` × `columns`; the following is for images only */
    int64_t size[2], out_size[2];
    Geometry geometry;
} Source;

/* Whether the lines of a panel are in the image as they are: a convolution of single pixels. */
int is_pointwise(const Source *source);

/* Fills panel[k × width + n] from column `begin` + n of the source, for n < used; the rest is zero. */
void fill_panel(const Kernels *kernels, const Source *source, float *panel, size_t width, size_t begin, size_t used);

/* Memory of this thread for `count` floats, aligned to a cache line; it is freed when the thread ends. NULL if none. */
float *thread_memory(size_t count);
