#include "convolution.h"

Status *read_geometry(const KernelInfo *info, Geometry *geometry) {
    static const char *const names[][2] = {{"kernel_h", "kernel_w"},     {"stride_h", "stride_w"},
                                           {"dilation_h", "dilation_w"}, {"pad_top", "pad_left"},
                                           {"pad_bottom", "pad_right"}};
    int64_t *const places[] = {geometry->kernel, geometry->stride, geometry->dilation,
                               geometry->pad, geometry->pad_end};
    for (int i = 0; i < 5; i++)
        for (int axis = 0; axis < 2; axis++) {
            TRY(get_int(info, names[i][axis], &places[i][axis]));
            if (places[i][axis] < (i < 3)) return CREATE_STATUS(api)(INVALID_ARGUMENT, "a size is negative or zero");
        }
    return NULL;
}

int64_t out_size(const Geometry *s, int axis, int64_t size) {
    int64_t reach = s->dilation[axis] * (s->kernel[axis] - 1) + 1;
    int64_t room = size + s->pad[axis] + s->pad_end[axis] - reach;
    return room < 0 ? 0 : room / s->stride[axis] + 1;
}
