/* Convolutions: their geometry as attributes give it, and the two operators. */
#pragma once

#include "tensors.h"

#define MAX_ITEMS 16 /* pieces that an operator's work is cut into, for threads to share */

/* Heights first, then widths. */
typedef struct {
    int64_t kernel[2], stride[2], dilation[2], pad[2], pad_end[2];
} Geometry;

Status *read_geometry(const KernelInfo *info, Geometry *geometry);
int64_t out_size(const Geometry *geometry, int axis, int64_t size);

Status *create_depthwise(const KernelInfo *info, void **made);
Status *compute_depthwise(void *made, KernelContext *context);

Status *create_conv(const KernelInfo *info, void **made);
Status *create_matmul(const KernelInfo *info, void **made);
Status *compute_product(void *made, KernelContext *context);
