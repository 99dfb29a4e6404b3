/* One instruction set's kernels. Defined before: LANES; MOST, the vectors of each of four rows that there are registers
   for; LARGER and SMALLER of two vectors; NAME(x), which makes a name of its own. */

/* A loop that the compiler writes out, so that sums stay in registers. */
#define EACH(i, count) _Pragma("GCC unroll 8") for (size_t i = 0; i < (count); i++)

typedef float NAME(Vector) __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t NAME(Mask) __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

/* x - 0 is x even for -0, so this is one broadcast; 0 + x would add. */
static inline NAME(Vector) NAME(spread)(float value) { return value - (NAME(Vector)){0}; }

/* LARGER and SMALLER give their second argument where one is NaN: it stays. */
static inline NAME(Vector) NAME(clip)(NAME(Vector) sums, float low, float high) {
    return SMALLER(NAME(spread)(high), LARGER(NAME(spread)(low), sums));
}

#define INLINE static inline __attribute__((always_inline))

/* How many of some vectors' values, from `column` on, belong to the tile. */
#define USED(tile, column, vectors) \
    ((tile)->used - (column) < (vectors) * LANES ? (tile)->used - (column) : (vectors) * LANES)

INLINE void NAME(store)(const Sparse *matrix, const Tile *tile, size_t row, size_t column, const NAME(Vector) *sums,
                        size_t vectors) {
    float *out = tile->out + (row - tile->first * matrix->block) * tile->row_step + column;
    const size_t used = USED(tile, column, vectors);
    if (used == vectors * LANES) {
        EACH(v, vectors)
            *(NAME(Vector) *)(out + v * LANES) = NAME(clip)(sums[v], matrix->low, matrix->high);
        return;
    }
    float values[MAX_WIDTH];
    EACH(v, vectors)
        *(NAME(Vector) *)(values + v * LANES) = NAME(clip)(sums[v], matrix->low, matrix->high);
    memcpy(out, values, used * sizeof *out);
}

/* Of a block's weights in NEON: products take them from one register's lanes, which the compiler would load one by one. */
#if MOST > 4
#define READ_WEIGHTS(w)                                   \
    NAME(Vector) weights = *(const NAME(Vector) *)(w);    \
    __asm__("" : "+w"(weights))
#else
#define READ_WEIGHTS(w) const float *weights = (w)
#endif

/* Four rows at a time, for columns from `column` to `end`: a value of the panel is loaded once for all of them. */
#define BLOCK_OF_FOUR(VECTORS)                                                                                      \
    static void NAME(four_##VECTORS)(const Sparse *matrix, const Tile *tile, size_t block_row, size_t offset,       \
                                     size_t column, size_t end) {                                                   \
        const size_t block = matrix->block, row = block_row * block + offset;                                       \
        const size_t start = matrix->starts[block_row], stop = matrix->starts[block_row + 1];                       \
        for (; column < end; column += VECTORS * LANES) {                                                           \
            NAME(Vector) sums[4][VECTORS], x[VECTORS];                                                              \
            EACH(i, 4)                                                                                              \
                EACH(v, VECTORS) sums[i][v] = NAME(spread)(matrix->bias ? matrix->bias[row + i] : 0);               \
            const float *line = tile->panel + column, *w = matrix->values + start * block + offset;                 \
            for (size_t j = start; j < stop; j++, w += block) {                                                     \
                READ_WEIGHTS(w);                                                                                    \
                line += matrix->steps[j] * tile->step;                                                              \
                EACH(v, VECTORS) x[v] = *(const NAME(Vector) *)(line + v * LANES);                                  \
                EACH(i, 4)                                                                                          \
                    EACH(v, VECTORS) sums[i][v] += NAME(spread)(weights[i]) * x[v];                                 \
            }                                                                                                       \
            EACH(i, 4) NAME(store)(matrix, tile, row + i, column, sums[i], VECTORS);                                \
        }                                                                                                           \
    }

/* One row: four of its values at a time, each with sums of its own, so that no sum waits for the one before. */
#define SINGLE_ROW(VECTORS)                                                                                         \
    static void NAME(single_##VECTORS)(const Sparse *matrix, const Tile *tile, size_t row, size_t column,           \
                                       size_t end) {                                                                \
        for (; column < end; column += VECTORS * LANES) {                                                           \
            NAME(Vector) sums[4][VECTORS] = {0};                                                                    \
            int32_t j = matrix->starts[row], stop = matrix->starts[row + 1];                                        \
            const float *x = tile->panel + column;                                                                  \
            EACH(v, VECTORS) sums[0][v] = NAME(spread)(matrix->bias ? matrix->bias[row] : 0);                       \
            for (; j + 4 <= stop; j += 4)                                                                           \
                EACH(i, 4) {                                                                                        \
                    x += matrix->steps[j + i] * tile->step;                                                         \
                    EACH(v, VECTORS)                                                                                \
                        sums[i][v] += matrix->values[j + i] * *(const NAME(Vector) *)(x + v * LANES);               \
                }                                                                                                   \
            for (; j < stop; j++) {                                                                                 \
                x += matrix->steps[j] * tile->step;                                                                 \
                EACH(v, VECTORS)                                                                                    \
                    sums[0][v] += matrix->values[j] * *(const NAME(Vector) *)(x + v * LANES);                       \
            }                                                                                                       \
            EACH(v, VECTORS) sums[0][v] = (sums[0][v] + sums[1][v]) + (sums[2][v] + sums[3][v]);                    \
            NAME(store)(matrix, tile, row, column, sums[0], VECTORS);                                               \
        }                                                                                                           \
    }

#define WIDTH(VECTORS)                                                                                              \
    BLOCK_OF_FOUR(VECTORS)                                                                                          \
    SINGLE_ROW(VECTORS)                                                                                             \
    static void NAME(multiply_##VECTORS)(const Sparse *matrix, const Tile *tile, size_t row, size_t column,         \
                                         size_t end) {                                                              \
        if (matrix->block == 1)                                                                                     \
            NAME(single_##VECTORS)(matrix, tile, row, column, end);                                                 \
        else                                                                                                        \
            for (size_t offset = 0; offset < matrix->block; offset += 4)                                            \
                NAME(four_##VECTORS)(matrix, tile, row, offset, column, end);                                       \
    }

WIDTH(1)
WIDTH(2)
WIDTH(3)
#if MOST > 3
WIDTH(4)
#endif
#if MOST > 4
WIDTH(5)
WIDTH(6)
#endif

/* Row by row, so that the output is written in long runs. As many vectors are summed at once as there are registers for,
   give or take one: `wide` vectors as far as `middle`, and one less behind it. */
static void NAME(multiply_rows)(const Sparse *matrix, const Tile *tile) {
    static void (*const by_width[])(const Sparse *, const Tile *, size_t, size_t, size_t) = {
        NAME(multiply_1), NAME(multiply_1), NAME(multiply_2), NAME(multiply_3),
#if MOST > 3
        NAME(multiply_4),
#endif
#if MOST > 4
        NAME(multiply_5), NAME(multiply_6)
#endif
    };
    const size_t most = MOST, vectors = tile->width / LANES;
    const size_t pieces = (vectors + most - 1) / most, wide = (vectors + pieces - 1) / pieces;
    const size_t middle = (vectors - pieces * (wide - 1)) * wide * LANES;
    for (size_t row = tile->first; row < tile->last; row++) {
        by_width[wide](matrix, tile, row, 0, middle);
        if (middle < tile->width) by_width[wide - 1](matrix, tile, row, middle, tile->width);
    }
}

/* Where rows lie side by side in the output, so many are summed apart from it: then each column's fill a cache line. */
#define STRIP (64 / sizeof(float))

static void NAME(multiply_strips)(const Sparse *matrix, const Tile *tile) {
    float sums[STRIP * MAX_WIDTH];
    Tile strip = *tile;
    for (strip.first = tile->first; strip.first < tile->last; strip.first = strip.last) {
        strip.last = strip.first + STRIP / matrix->block < tile->last ? strip.first + STRIP / matrix->block : tile->last;
        const size_t rows = (strip.last - strip.first) * matrix->block;
        for (size_t column = 0; column < tile->used; column += MAX_WIDTH) {
            strip.width = strip.used = tile->width - column < MAX_WIDTH ? tile->width - column : MAX_WIDTH;
            strip.panel = tile->panel + column, strip.out = sums, strip.row_step = strip.width;
            NAME(multiply_rows)(matrix, &strip);
            transpose(sums, strip.width, rows, USED(tile, column, MAX_WIDTH / LANES),
                      tile->out + (strip.first - tile->first) * matrix->block + column * tile->column_step, tile->column_step);
        }
    }
}

static void NAME(multiply)(const Sparse *matrix, const Tile *tile) {
    (tile->row_step == 1 ? NAME(multiply_strips) : NAME(multiply_rows))(matrix, tile);
}

/* Copies lines that are so many floats apart side by side. */
static void NAME(copy_lines)(const float *x, size_t step, size_t lines, float *panel, size_t width, size_t used) {
    for (size_t k = 0; k < lines; k++, x += step, panel += width)
        if (used == width)
            for (size_t n = 0; n < width; n += LANES) *(NAME(Vector) *)(panel + n) = *(const NAME(Vector) *)(x + n);
        else
            for (size_t n = 0; n < width; n++) panel[n] = n < used ? x[n] : 0;
}

/* Sums of one row of blocks of four over a single column, as many blocks at a time as a vector holds. `w` and `steps` are
   left at the blocks that remain, `x` at the column of the last one. */
#if LANES == 8
static inline __m128 multiply_pairs_of_blocks(const float **w, const uint8_t **steps, const float **x, size_t count) {
    __m256 sums[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()};
    for (; count >= 8; count -= 8, *w += 32, *steps += 8)
        EACH(i, 4) {
            const float *first = *x + (*steps)[2 * i];
            *x = first + (*steps)[2 * i + 1];
            const __m256 each = _mm256_blend_ps(_mm256_broadcast_ss(first), _mm256_broadcast_ss(*x), 0xf0);
            sums[i] = _mm256_fmadd_ps(_mm256_loadu_ps(*w + 8 * i), each, sums[i]);
        }
    const __m256 sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    return _mm256_castps256_ps128(sum) + _mm256_extractf128_ps(sum, 1);
}
#elif LANES == 16
static inline __m128 multiply_four_blocks(const float **w, const uint8_t **steps, const float **x, size_t count) {
    __m512 sums[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    for (; count >= 8; count -= 8, *w += 32, *steps += 8)
        EACH(i, 2) {
            PLACES_OF_FOUR(*steps + 4 * i);
            __m512 each = _mm512_broadcastss_ps(_mm_load_ss(*x + places[0]));
            each = _mm512_mask_broadcastss_ps(each, 0x00f0, _mm_load_ss(*x + places[1]));
            each = _mm512_mask_broadcastss_ps(each, 0x0f00, _mm_load_ss(*x + places[2]));
            each = _mm512_mask_broadcastss_ps(each, 0xf000, _mm_load_ss(*x + places[3]));
            *x += places[3];
            sums[i] = _mm512_fmadd_ps(_mm512_loadu_ps(*w + 16 * i), each, sums[i]);
        }
    const __m512 sum = sums[0] + sums[1];
    return (_mm512_extractf32x4_ps(sum, 0) + _mm512_extractf32x4_ps(sum, 1)) +
           (_mm512_extractf32x4_ps(sum, 2) + _mm512_extractf32x4_ps(sum, 3));
}
#endif

/* The sums of four rows of a block row over a single column. */
static inline Four NAME(row_of_blocks)(const float *w, const uint8_t *steps, const float *x, size_t count, size_t block) {
    Four sums[4] = {0};
#if LANES == 8
    if (block == 4)
        sums[1] = (Four)multiply_pairs_of_blocks(&w, &steps, &x, count), count %= 8;
    else
#elif LANES == 16
    if (block == 4)
        sums[1] = (Four)multiply_four_blocks(&w, &steps, &x, count), count %= 8;
    else
#endif
        for (; count >= 4; count -= 4, steps += 4, w += 4 * block)
            EACH(i, 4) sums[i] += *(const Four *)(w + i * block) * *(x += steps[i]);
    for (; count; count--, steps++, w += block) sums[0] += *(const Four *)w * *(x += *steps);
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

static inline float NAME(row_of_values)(const float *w, const uint8_t *steps, const float *x, size_t count) {
    float sums[4] = {0};
    for (; count >= 4; count -= 4, steps += 4, w += 4)
        EACH(i, 4) sums[i] += w[i] * *(x += steps[i]);
    for (; count; count--, steps++, w++) sums[0] += *w * *(x += *steps);
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/* Writes four rows of a single column. */
static inline void NAME(write_four)(const Sparse *matrix, Four sum, size_t row, float *out) {
    const Four low = matrix->low - (Four){0}, high = matrix->high - (Four){0};
    if (matrix->bias) sum += *(const Four *)(matrix->bias + row);
    *(Four *)(out + row) = SELECT(sum < low, low, SELECT(sum > high, high, sum));
}

/* A single column: four products of a block at a time, or one. */
static void NAME(multiply_row)(const Sparse *matrix, const float *x, float *out, size_t first, size_t last) {
    const size_t block = matrix->block;
    for (size_t row = first; row < last; row++) {
        const size_t start = matrix->starts[row], count = matrix->starts[row + 1] - start;
        const uint8_t *steps = matrix->steps + start;
        const float *w = matrix->values + start * block;
        if (block == 1) {
            const float sum = NAME(row_of_values)(w, steps, x, count) + (matrix->bias ? matrix->bias[row] : 0);
            out[row] = sum < matrix->low ? matrix->low : sum > matrix->high ? matrix->high : sum;
            continue;
        }
        for (size_t place = row * block; place < (row + 1) * block; place += 4, w += 4)
            NAME(write_four)(matrix, NAME(row_of_blocks)(w, steps, x, count, block), place, out);
    }
}

#undef EACH
#undef INLINE
#undef USED
#undef READ_WEIGHTS
#undef BLOCK_OF_FOUR
#undef SINGLE_ROW
#undef WIDTH
#undef STRIP
