/* One instruction set's depthwise convolution. Defined before: LANES, and NAME(x) that makes a name of its own. */

/* One line of an image, its columns dealt out to `stride` lines of the buffer in turn. */
static inline void NAME(deal_line)(const Depthwise *d, const float *line, float *to) {
    const size_t stride = d->stride[1];
    for (size_t phase = 0; phase < stride; phase++) {
        const Phase *p = &d->phases[phase];
        const float *from = line + p->skipped;
        float *place = to + phase * d->pitch + p->first;
        if (stride == 1)
            memcpy(place, from, p->count * sizeof *place);
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

/* Lines of the output from `row` on that are computed by fours; returns the first one that is left. The last vector
   of a line ends where the line does; that of a line narrower than a vector reaches into the next one, written later. */
static size_t NAME(lines_by_fours)(const Depthwise *d, const float *weights, float bias, const float *buffer, float *out) {
    const size_t width = d->out_size[1], line = d->stride[1] * d->pitch;
    const float *end = out + d->out_size[0] * width;
    size_t row = 0;
    for (; row + 4 <= d->out_size[0]; row += 4)
        for (size_t column = 0, next;; column = next) {
            const float *from = buffer + row * d->stride[0] * line + column;
            if (d->stride[0] == 1)
                NAME(three_by_three)(d, weights, bias, from, 1, out + row * width + column, end);
            else
                NAME(three_by_three)(d, weights, bias, from, 2, out + row * width + column, end);
            if (column + LANES >= width) break;
            next = column + 2 * LANES <= width ? column + LANES : width - LANES;
        }
    return row;
}

/* Vectors may reach beyond the end of a line into the next one, which is written later, but not beyond the image. */
static void NAME(depthwise)(const Depthwise *d, const float *x, const float *weights, float bias, float *buffer,
                            float *out) {
    const size_t line = d->stride[1] * d->pitch, width = d->out_size[1];
    static void (*const by_count[])(const Depthwise *, const float *, float, const float *, float *, const float *) = {
        NAME(depthwise_1), NAME(depthwise_2), NAME(depthwise_3), NAME(depthwise_4)};
    const float *end = out + d->out_size[0] * width;
    for (size_t row = 0; row < d->size[0] && row + d->pad[0] < d->lines; row++)
        NAME(deal_line)(d, x + row * d->size[1], buffer + (row + d->pad[0]) * line);
    size_t row = d->by_fours ? NAME(lines_by_fours)(d, weights, bias, buffer, out) : 0;
    for (out += row * width; row < d->out_size[0]; row++, out += width) {
        const float *from = buffer + row * d->stride[0] * line;
        for (size_t column = 0, left = (width + LANES - 1) / LANES, some; left; left -= some, column += some * LANES) {
            some = left < 4 ? left : 4;
            by_count[some - 1](d, weights, bias, from + column, out + column, end);
        }
    }
}

#undef DEPTHWISE_LINE
