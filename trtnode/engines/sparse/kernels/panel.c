#include "panel.h"

#include <pthread.h>
#include <stdlib.h>

#include "transpose.h"

static void fill_from_rows(const Source *source, float *panel, size_t width, size_t begin, size_t used) {
    transpose(source->x + begin * source->columns, source->columns, used, source->columns, panel, width);
    for (size_t k = 0; k < source->columns; k++)
        for (size_t n = used; n < width; n++) panel[k * width + n] = 0;
}

int is_pointwise(const Source *source) {
    const Geometry *g = &source->geometry;
    if (source->is_rows) return 0;
    for (int axis = 0; axis < 2; axis++)
        if (g->kernel[axis] != 1 || g->stride[axis] != 1 || g->pad[axis] || g->pad_end[axis]) return 0;
    return 1;
}

/* One line of the panel: what the kernel's position (i, j) reads of a channel for columns from `begin` on. */
static void fill_line(const Source *s, const float *channel, int64_t i, int64_t j, float *line, size_t begin,
                      size_t used) {
    int64_t row = begin / s->out_size[1], column = begin % s->out_size[1];
    for (size_t n = 0; n < used; n++) {
        int64_t y = row * s->geometry.stride[0] - s->geometry.pad[0] + i * s->geometry.dilation[0];
        int64_t x = column * s->geometry.stride[1] - s->geometry.pad[1] + j * s->geometry.dilation[1];
        int inside = y >= 0 && y < s->size[0] && x >= 0 && x < s->size[1];
        line[n] = inside ? channel[y * s->size[1] + x] : 0;
        if (++column == s->out_size[1]) column = 0, row++;
    }
}

static void fill_from_image(const Source *source, float *panel, size_t width, size_t begin, size_t used) {
    const size_t pixels = source->size[0] * source->size[1];
    const size_t positions = source->geometry.kernel[0] * source->geometry.kernel[1];
    for (size_t k = 0; k < source->columns; k++) {
        const float *channel = source->x + k / positions * pixels;
        float *line = panel + k * width;
        fill_line(source, channel, k % positions / source->geometry.kernel[1], k % source->geometry.kernel[1], line, begin, used);
        for (size_t n = used; n < width; n++) line[n] = 0;
    }
}

void fill_panel(const Kernels *kernels, const Source *source, float *panel, size_t width, size_t begin, size_t used) {
    if (source->is_rows)
        fill_from_rows(source, panel, width, begin, used);
    else if (is_pointwise(source))
        kernels->copy_lines(source->x + begin, source->outputs, source->columns, panel, width, used);
    else
        fill_from_image(source, panel, width, begin, used);
}

typedef struct {
    size_t count;
    float *floats;
} Memory;

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void release(void *held) {
    free(((Memory *)held)->floats);
    free(held);
}

static void make_key(void) { pthread_key_create(&key, release); }

float *thread_memory(size_t count) {
    pthread_once(&once, make_key);
    Memory *memory = pthread_getspecific(key);
    if (!memory) {
        if (!(memory = calloc(1, sizeof *memory))) return NULL;
        pthread_setspecific(key, memory);
    }
    if (memory->count < count) {
        free(memory->floats);
        memory->floats = aligned_alloc(64, (count * sizeof(float) + 63) / 64 * 64);
        memory->count = memory->floats ? count : 0;
    }
    return memory->floats;
}
