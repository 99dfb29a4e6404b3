/* One instruction set's depthwise convolution. Defined before: LANES; EVEN, the places of even
   values in two vectors of which the second begins one value early; NAME(x), which makes a name of its own. */

/* Every `stride`-th value of a line, side by side; `stride` is 1 or 2. The last vector overlaps the one before it. */
static inline __attribute__((always_inline)) void NAME(copy)(float *to, const float *from, size_t count, size_t stride) {
    if (count < LANES) {
        for (size_t i = 0; i < count; i++) to[i] = from[stride * i];
        return;
    }
    for (size_t n = 0;; n = n + 2 * LANES <= count ? n + LANES : count - LANES) {
        NAME(Vector) x = *(const NAME(Vector) *)(from + stride * n);
        if (stride == 2) x = __builtin_shuffle(x, *(const NAME(Vector) *)(from + 2 * n + LANES - 1), (NAME(Mask))EVEN);
        *(NAME(Vector) *)(to + n) = x;
        if (n + LANES == count) return;
    }
}

/* Lines `first` to `last` of an image, their columns dealt out to `stride` lines of the buffer in turn. */
static void NAME(deal)(const Depthwise *d, const float *x, float *buffer, size_t first, size_t last) {
    const size_t stride = d->stride[1], step = stride * d->pitch;
    for (size_t phase = 0; phase < stride; phase++) {
        const Phase p = d->phases[phase];
        const float *from = x + first * d->size[1] + p.skipped;
        float *to = buffer + (first + d->pad[0]) * step + phase * d->pitch + p.first;
        for (size_t row = first; row < last; row++, from += d->size[1], to += step)
            if (stride == 1)
                NAME(copy)(to, from, p.count, 1);
            else if (stride == 2)
                NAME(copy)(to, from, p.count, 2);
            else
                for (size_t i = 0; i < p.count; i++) to[i] = from[stride * i];
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

/* Deals lines of the image, from `row` on, that lie before `end` in the buffer; returns the first one that is left. */
static size_t NAME(deal_lines)(const Depthwise *d, const float *x, float *buffer, size_t row, size_t end) {
    const size_t lines = end < d->lines ? end : d->lines, room = lines > d->pad[0] ? lines - d->pad[0] : 0;
    const size_t last = room < d->size[0] ? room : d->size[0];
    if (row >= last) return row;
    NAME(deal)(d, x, buffer, row, last);
    return last;
}

/* A 3 × 3 filter, four lines of the output at a time, one vector of each: they share lines of the buffer, and so loads. The
   last four lines may be computed in part before. The image is dealt out four lines of the output ahead, so that it is read
   from the nearest cache. The last vector of a line ends where the line does; that of a line narrower than a vector reaches
   into the next one, written later. */
static inline __attribute__((always_inline)) void NAME(lines_by_fours)(const Depthwise *d, const float *x,
                                                                       const float *weights, float bias, float *buffer,
                                                                       float *out, size_t stride) {
    const size_t width = d->out_size[1], rows = d->out_size[0], pitch = d->pitch, line = stride * pitch;
    const size_t taps[3] = {0, stride == 1 ? 1 : pitch, stride == 1 ? 2 : 1};
    const NAME(Vector) low = NAME(spread)(d->low), high = NAME(spread)(d->high), first = NAME(spread)(bias);
    const float *end = out + rows * width;
    NAME(Vector) w[9];
    for (int i = 0; i < 9; i++) w[i] = NAME(spread)(weights[i]);
    for (size_t row = 0, dealt = 0, next;; row = next) {
        dealt = NAME(deal_lines)(d, x, buffer, dealt, (row + 8) * stride + 3);
        for (size_t column = 0, right;; column = right) {
            const float *from = buffer + row * stride * line + column;
            float *to = out + row * width + column;
            NAME(Vector) sums[4] = {first, first, first, first};
#pragma GCC unroll 16
            for (size_t i = 0; i < 3 * stride + 3; i++, from += line)
#pragma GCC unroll 3
                for (size_t j = 0; j < 3; j++) {
                    const NAME(Vector) value = *(const NAME(Vector) *)(from + taps[j]);
#pragma GCC unroll 4
                    for (size_t r = 0; r < 4; r++)
                        if (i >= r * stride && i < r * stride + 3) sums[r] += w[(i - r * stride) * 3 + j] * value;
                }
#pragma GCC unroll 4
            for (int r = 0; r < 4; r++, to += width) {
                const NAME(Vector) sum = SMALLER(high, LARGER(low, sums[r]));
                if (width >= LANES)
                    *(NAME(Vector) *)to = sum;
                else
                    NAME(store_units)(to, sum, end - to);
            }
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
        if (d->stride[0] == 1)
            NAME(lines_by_fours)(d, x, weights, bias, buffer, out, 1);
        else
            NAME(lines_by_fours)(d, x, weights, bias, buffer, out, 2);
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
