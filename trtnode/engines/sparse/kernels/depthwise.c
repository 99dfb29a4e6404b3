/* The operator DepthwiseConv: one filter for each channel, on plain layouts, so that nothing is reordered between sparse
   layers. Inputs: X; weights [channels, 1, kernel_h, kernel_w]; bias [channels], optional. */
#include <stdlib.h>
#include <string.h>

#include "convolution.h"
#include "panel.h"

typedef struct {
    Geometry geometry;
    const float *weights, *bias;
    size_t channels;
    float low, high;
    const Kernels *kernels;
} Kernel;

static int has_usual_sizes(const Geometry *g) {
    for (int axis = 0; axis < 2; axis++) {
        const int64_t kernel = g->kernel[axis], stride = g->stride[axis], dilation = g->dilation[axis];
        if (kernel > MAX_SIDE || stride > MAX_SIDE || dilation > MAX_SIDE) return 0;
        if (g->pad[axis] > MAX_SIDE || g->pad_end[axis] > MAX_SIDE) return 0;
    }
    return 1;
}

Status *create_depthwise(const KernelInfo *info, void **made) {
    Kernel kernel = {.kernels = best_kernels()};
    Tensor weights, bias;
    TRY(read_geometry(info, &kernel.geometry));
    TRY(GET_FLOAT(api)(info, "low", &kernel.low));
    TRY(GET_FLOAT(api)(info, "high", &kernel.high));
    TRY(read_constant(info, 1, &weights));
    TRY(read_constant(info, 2, &bias));
    const int64_t *sides = kernel.geometry.kernel;
    if (!weights.data || weights.rank != 4 || weights.sizes[1] != 1 || weights.sizes[2] != sides[0] ||
        weights.sizes[3] != sides[1] || (bias.data && bias.count != (size_t)weights.sizes[0]) ||
        !has_usual_sizes(&kernel.geometry))
        return CREATE_STATUS(api)(INVALID_ARGUMENT, "the sizes of a depthwise convolution don't fit each other");
    kernel.weights = weights.data, kernel.bias = bias.data, kernel.channels = weights.sizes[0];
    if (!(*made = malloc(sizeof kernel))) return CREATE_STATUS(api)(FAIL, "out of memory");
    memcpy(*made, &kernel, sizeof kernel);
    return NULL;
}

typedef struct {
    const Kernel *kernel;
    Depthwise plan;
    const float *x;
    float *out;
    size_t planes, items;
    int out_of_memory;
} Work;

static void compute_planes(void *data, size_t item) {
    Work *work = data;
    const Kernel *kernel = work->kernel;
    const Depthwise *plan = &work->plan;
    const size_t values = plan->lines * plan->stride[1] * plan->pitch;
    float *buffer = thread_memory(values);
    if (!buffer) {
        work->out_of_memory = 1;
        return;
    }
    memset(buffer, 0, values * sizeof *buffer);
    for (size_t plane = work->planes * item / work->items; plane < work->planes * (item + 1) / work->items; plane++) {
        const size_t channel = plane % kernel->channels;
        kernel->kernels->depthwise(plan, work->x + plane * plan->size[0] * plan->size[1],
                                   kernel->weights + channel * plan->taps, kernel->bias ? kernel->bias[channel] : 0,
                                   buffer, work->out + plane * plan->out_size[0] * plan->out_size[1]);
    }
}

/* The buffer's lines are as long as the vectors of the last output reach; columns that no output reads are left out. */
static void plan_buffer(const Kernel *kernel, Depthwise *plan) {
    const Geometry *g = &kernel->geometry;
    const size_t reach = (g->kernel[1] - 1) * g->dilation[1] / g->stride[1], lanes = kernel->kernels->lanes;
    plan->pitch = (plan->out_size[1] + lanes - 1) / lanes * lanes + reach + 1;
    plan->lines = (plan->out_size[0] - 1) * g->stride[0] + (g->kernel[0] - 1) * g->dilation[0] + 1;
    plan->by_fours = g->kernel[0] == 3 && g->kernel[1] == 3 && g->dilation[0] == 1 && g->dilation[1] == 1 &&
                     g->stride[0] == g->stride[1] && g->stride[0] < 3 && plan->out_size[0] >= 4;
    for (size_t phase = 0, stride = g->stride[1], pad = g->pad[1]; phase < stride; phase++) {
        const size_t first = (pad + stride - 1 - phase) / stride, skipped = first * stride + phase - pad;
        const size_t left = skipped < plan->size[1] ? (plan->size[1] - skipped + stride - 1) / stride : 0;
        const size_t room = first < plan->pitch ? plan->pitch - first : 0;
        plan->phases[phase] = (Phase){.first = first, .skipped = skipped, .count = left < room ? left : room};
    }
    for (int64_t i = 0; i < g->kernel[0]; i++)
        for (int64_t j = 0; j < g->kernel[1]; j++) {
            const size_t column = j * g->dilation[1], line = i * g->dilation[0] * g->stride[1];
            plan->offsets[plan->taps++] = (line + column % g->stride[1]) * plan->pitch + column / g->stride[1];
        }
}

Status *compute_depthwise(void *made, KernelContext *context) {
    const Kernel *kernel = made;
    Tensor x;
    TRY(read_input(context, 0, &x));
    if (x.rank != 4 || (size_t)x.sizes[1] != kernel->channels)
        return CREATE_STATUS(api)(INVALID_ARGUMENT, "DepthwiseConv: X has another shape than its weights are for");
    Work work = {.kernel = kernel, .x = x.data, .plan = {.low = kernel->low, .high = kernel->high}};
    int64_t sizes[4] = {x.sizes[0], x.sizes[1]};
    for (int axis = 0; axis < 2; axis++) {
        sizes[2 + axis] = out_size(&kernel->geometry, axis, x.sizes[2 + axis]);
        work.plan.size[axis] = x.sizes[2 + axis], work.plan.out_size[axis] = sizes[2 + axis];
        work.plan.stride[axis] = kernel->geometry.stride[axis], work.plan.pad[axis] = kernel->geometry.pad[axis];
    }
    TRY(make_output(context, 0, sizes, 4, &work.out));
    work.planes = sizes[0] * sizes[1];
    if (!work.planes || !sizes[2] || !sizes[3]) return NULL;
    plan_buffer(kernel, &work.plan);
    work.items = work.planes < MAX_ITEMS ? work.planes : MAX_ITEMS;
    TRY(PARALLEL_FOR(api)(context, compute_planes, work.items, 0, &work));
    return work.out_of_memory ? CREATE_STATUS(api)(FAIL, "out of memory for a padded image") : NULL;
}
