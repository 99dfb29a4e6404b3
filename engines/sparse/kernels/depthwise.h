/* One instruction set's depthwise convolution. Defined before: LANES, and NAME(x) that makes a name of its own. */

static inline void NAME(copy)(float *to, const float *from, size_t count) {
    if (count < LANES && LANES < 16) {
        memcpy(to, from, count * sizeof *to);
        return;
    }
    for (size_t n = 0; n + LANES <= count; n += LANES) *(NAME(Vector) *)(to + n) = *(const NAME(Vector) *)(from + n);
    const size_t last = count < LANES ? 0 : count - LANES;
    NAME(store_units)(to + last, NAME(load_units)(from + last, count), count);
}

/* One line of an image, its columns dealt out to `stride` lines of the buffer in turn. */
static inline void NAME(deal_line)(const Depthwise *d, const float *line, float *to) {
    const size_t stride = d->stride[1];
    for (size_t phase = 0; phase < stride; phase++) {
        const Phase *p = &d->phases[phase];
        const float *from = line + p->skipped;
        float *place = to + phase * d->pitch + p->first;
        if (stride == 1)
            NAME(copy)(place, from, p->count);
        else if (stride == 2)
            for (size_t i = 0; i < p->count; i++) place[i] = from[2 * i];
        else
            for (size_t i = 0; i < p->count; i++) place[i] = from[stride * i];
    }
}

/* Some vectors of one line of the output: each weight is loaded once for all of them. Nothing is written beyond `end`. */
#define DEPTHWISE_LINE(COUNT)                                                                                      \
    static void NAME(depthwise_##COUNT)(const Depthwise *d, const float *weights, float bias, const float *from,   \
                                        float *out, const float *end) {                                            \
        NAME(Vector) sums[COUNT];                                                                                  \
        for (int v = 0; v < COUNT; v++) sums[v] = NAME(spread)(bias);                                              \
        for (size_t tap = 0; tap < d->taps; tap++) {                                                               \
            const float *x = from + d->offsets[tap];                                                               \
            for (int v = 0; v < COUNT; v++) sums[v] += weights[tap] * *(const NAME(Vector) *)(x + v * LANES);      \
        }                                                                                                          \
        for (int v = 0; v < COUNT; v++, out += LANES)                                                              \
            NAME(store_units)(out, NAME(clip)(sums[v], d->low, d->high), end - out);                               \
    }

DEPTHWISE_LINE(1)
DEPTHWISE_LINE(2)
DEPTHWISE_LINE(3)
DEPTHWISE_LINE(4)

/* Four lines of the output of a 3 × 3 filter, one vector of each: they share lines of the buffer, and so loads. */
static inline __attribute__((always_inline)) void NAME(three_by_three)(const Depthwise *d, const float *weights, float bias,
                                                                       const float *from, int stride, float *out,
                                                                       const float *end) {
    const size_t line = d->stride[1] * d->pitch, width = d->out_size[1];
    NAME(Vector) sums[4];
    for (int r = 0; r < 4; r++) sums[r] = NAME(spread)(bias);
#pragma GCC unroll 16
    for (int i = 0; i < 3 * stride + 3; i++)
#pragma GCC unroll 3
        for (int j = 0; j < 3; j++) {
            NAME(Vector) x = *(const NAME(Vector) *)(from + i * line + d->offsets[j]);
#pragma GCC unroll 4
            for (int r = 0; r < 4; r++)
                if (i >= r * stride && i < r * stride + 3) sums[r] += weights[(i - r * stride) * 3 + j] * x;
        }
    for (int r = 0; r < 4; r++, out += width) NAME(store_units)(out, NAME(clip)(sums[r], d->low, d->high), end - out);
}

/* Deals lines of the image, from `row` on, that lie before `end` in the buffer; returns the first one that is left. */
static size_t NAME(deal_lines)(const Depthwise *d, const float *x, float *buffer, size_t row, size_t end) {
    const size_t line = d->stride[1] * d->pitch;
    if (end > d->lines) end = d->lines;
    for (; row < d->size[0] && row + d->pad[0] < end; row++)
        NAME(deal_line)(d, x + row * d->size[1], buffer + (row + d->pad[0]) * line);
    return row;
}

/* All lines of the output, by fours: the last four may be computed in part before. The image is dealt out four lines of
   the output ahead, so that it is read from the nearest cache. The last vector of a line ends where the line does; that of
   a line narrower than a vector reaches into the next one, written later. */
static void NAME(lines_by_fours)(const Depthwise *d, const float *x, const float *weights, float bias, float *buffer,
                                 float *out) {
    const size_t width = d->out_size[1], line = d->stride[1] * d->pitch, rows = d->out_size[0];
    const float *end = out + rows * width;
    for (size_t row = 0, dealt = 0, next;; row = next) {
        dealt = NAME(deal_lines)(d, x, buffer, dealt, (row + 8) * d->stride[0] + 3);
        for (size_t column = 0, right;; column = right) {
            const float *from = buffer + row * d->stride[0] * line + column;
            if (d->stride[0] == 1)
                NAME(three_by_three)(d, weights, bias, from, 1, out + row * width + column, end);
            else
                NAME(three_by_three)(d, weights, bias, from, 2, out + row * width + column, end);
            if (column + LANES >= width) break;
            right = column + 2 * LANES <= width ? column + LANES : width - LANES;
        }
        if (row + 4 >= rows) return;
        next = row + 8 <= rows ? row + 4 : rows - 4;
    }
}

/* Vectors may reach beyond the end of a line into the next one, which is written later, but not beyond the image. */
static void NAME(depthwise)(const Depthwise *d, const float *x, const float *weights, float bias, float *buffer,
                            float *out) {
    const size_t line = d->stride[1] * d->pitch, width = d->out_size[1];
    static void (*const by_count[])(const Depthwise *, const float *, float, const float *, float *, const float *) = {
        NAME(depthwise_1), NAME(depthwise_2), NAME(depthwise_3), NAME(depthwise_4)};
    const float *end = out + d->out_size[0] * width;
    if (d->by_fours) {
        NAME(lines_by_fours)(d, x, weights, bias, buffer, out);
        return;
    }
    NAME(deal_lines)(d, x, buffer, 0, d->lines);
    for (size_t row = 0; row < d->out_size[0]; row++, out += width) {
        const float *from = buffer + row * d->stride[0] * line;
        for (size_t column = 0, left = (width + LANES - 1) / LANES, some; left; left -= some, column += some * LANES) {
            some = left < 4 ? left : 4;
            by_count[some - 1](d, weights, bias, from + column, out + column, end);
        }
    }
}

#undef DEPTHWISE_LINE
