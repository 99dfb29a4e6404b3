/* One instruction set's kernels. Defined before: LANES; LARGER and SMALLER of two
   vectors; NAME(x), which makes a name of its own. */

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

static inline __attribute__((always_inline)) void NAME(store)(const Sparse *matrix, const Tile *tile, size_t row, const NAME(Vector) *sums,
                               size_t vectors) {
    float *out = tile->out + row * tile->row_step;
    if (tile->column_step == 1 && tile->used == vectors * LANES) {
        EACH(v, vectors)
            *(NAME(Vector) *)(out + v * LANES) = NAME(clip)(sums[v], matrix->low, matrix->high);
        return;
    }
    float values[MAX_WIDTH];
    EACH(v, vectors)
        *(NAME(Vector) *)(values + v * LANES) = NAME(clip)(sums[v], matrix->low, matrix->high);
    for (size_t column = 0; column < tile->used; column++) out[column * tile->column_step] = values[column];
}

/* Four rows that lie side by side in the output: each column's four values are one store. */
static inline __attribute__((always_inline)) void NAME(store_columns)(const Sparse *matrix, const Tile *tile, size_t row, const NAME(Vector) *sums,
                                       size_t vectors) {
    typedef float Column __attribute__((vector_size(16), aligned(4), may_alias));
    float values[4][MAX_WIDTH];
    EACH(i, 4)
        EACH(v, vectors)
            *(NAME(Vector) *)(values[i] + v * LANES) = NAME(clip)(sums[i * vectors + v], matrix->low, matrix->high);
    for (size_t column = 0; column < tile->used; column++)
        *(Column *)(tile->out + row + column * tile->column_step) =
            (Column){values[0][column], values[1][column], values[2][column], values[3][column]};
}

/* Four rows at a time: a value of the panel is loaded once for all of them. */
#define BLOCK_OF_FOUR(VECTORS)                                                                                      \
    static void NAME(four_##VECTORS)(const Sparse *matrix, const Tile *tile, size_t block_row, size_t offset) {     \
        const size_t block = matrix->block, row = block_row * block + offset;                                       \
        NAME(Vector) sums[4][VECTORS], x[VECTORS];                                                                  \
        EACH(i, 4)                                                                                                  \
            EACH(v, VECTORS) sums[i][v] = NAME(spread)(matrix->bias ? matrix->bias[row + i] : 0);                   \
        const float *line = tile->panel;                                                                            \
        for (int32_t j = matrix->starts[block_row]; j < matrix->starts[block_row + 1]; j++) {                       \
            line += matrix->steps[j] * tile->step;                                                                  \
            const float *w = matrix->values + j * block + offset;                                                   \
            EACH(v, VECTORS) x[v] = *(const NAME(Vector) *)(line + v * LANES);                                      \
            EACH(i, 4)                                                                                              \
                EACH(v, VECTORS) sums[i][v] += NAME(spread)(w[i]) * x[v];                                           \
        }                                                                                                           \
        if (tile->row_step == 1)                                                                                    \
            NAME(store_columns)(matrix, tile, row, sums[0], VECTORS);                                               \
        else                                                                                                        \
            EACH(i, 4) NAME(store)(matrix, tile, row + i, sums[i], VECTORS);                                        \
    }

/* One row: four of its values at a time, each with sums of its own, so that no sum waits for the one before. */
#define SINGLE_ROW(VECTORS)                                                                                         \
    static void NAME(single_##VECTORS)(const Sparse *matrix, const Tile *tile, size_t row) {                        \
        NAME(Vector) sums[4][VECTORS] = {0};                                                                        \
        int32_t j = matrix->starts[row], end = matrix->starts[row + 1];                                             \
        const float *x = tile->panel;                                                                               \
        EACH(v, VECTORS) sums[0][v] = NAME(spread)(matrix->bias ? matrix->bias[row] : 0);                           \
        for (; j + 4 <= end; j += 4)                                                                                \
            EACH(i, 4) {                                                                                            \
                x += matrix->steps[j + i] * tile->step;                                                             \
                EACH(v, VECTORS)                                                                                    \
                    sums[i][v] += matrix->values[j + i] * *(const NAME(Vector) *)(x + v * LANES);                   \
            }                                                                                                       \
        for (; j < end; j++) {                                                                                      \
            x += matrix->steps[j] * tile->step;                                                                     \
            EACH(v, VECTORS)                                                                                        \
                sums[0][v] += matrix->values[j] * *(const NAME(Vector) *)(x + v * LANES);                           \
        }                                                                                                           \
        EACH(v, VECTORS) sums[0][v] = (sums[0][v] + sums[1][v]) + (sums[2][v] + sums[3][v]);                        \
        NAME(store)(matrix, tile, row, sums[0], VECTORS);                                                           \
    }

#define WIDTH(VECTORS)                                                                                              \
    BLOCK_OF_FOUR(VECTORS)                                                                                          \
    SINGLE_ROW(VECTORS)                                                                                             \
    static void NAME(multiply_##VECTORS)(const Sparse *matrix, const Tile *tile) {                                  \
        for (size_t row = tile->first; row < tile->last; row++)                                                     \
            if (matrix->block == 1)                                                                                 \
                NAME(single_##VECTORS)(matrix, tile, row);                                                          \
            else                                                                                                    \
                for (size_t offset = 0; offset < matrix->block; offset += 4)                                        \
                    NAME(four_##VECTORS)(matrix, tile, row, offset);                                                \
    }

WIDTH(1)
WIDTH(2)
WIDTH(3)
#if LANES == 16 /* the others have registers for three */
WIDTH(4)
#endif

static void NAME(multiply)(const Sparse *matrix, const Tile *tile) {
    void (*const by_width[])(const Sparse *, const Tile *) = {NAME(multiply_1), NAME(multiply_2), NAME(multiply_3),
#if LANES == 16
                                                               NAME(multiply_4)
#endif
    };
    by_width[tile->width / LANES - 1](matrix, tile);
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
    for (; count >= 8; count -= 8, *w += 32, *steps += 8) {
        EACH(half, 2) {
            PLACES_OF_FOUR(*steps + 4 * half);
            EACH(i, 2) {
                const __m256 first = _mm256_broadcast_ss(*x + places[2 * i]);
                const __m256 each = _mm256_blend_ps(first, _mm256_broadcast_ss(*x + places[2 * i + 1]), 0xf0);
                sums[2 * half + i] = _mm256_fmadd_ps(_mm256_loadu_ps(*w + 16 * half + 8 * i), each, sums[2 * half + i]);
            }
            *x += places[3];
        }
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

/* A single column: four products of a block at a time, or one. */
static void NAME(multiply_row)(const Sparse *matrix, const float *x, float *out, size_t first, size_t last) {
    typedef float Four __attribute__((vector_size(16), aligned(4), may_alias));
    const size_t block = matrix->block;
    for (size_t row = first; row < last; row++) {
        const int32_t start = matrix->starts[row], end = matrix->starts[row + 1];
        if (block == 1) {
            float sums[4] = {matrix->bias ? matrix->bias[row] : 0};
            const float *value = x;
            int32_t j = start;
            for (; j + 4 <= end; j += 4) {
                PLACES_OF_FOUR(matrix->steps + j);
                EACH(i, 4) sums[i] += matrix->values[j + i] * value[places[i]];
                value += places[3];
            }
            for (; j < end; j++) sums[0] += matrix->values[j] * *(value += matrix->steps[j]);
            float sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
            out[row] = sum < matrix->low ? matrix->low : sum > matrix->high ? matrix->high : sum;
            continue;
        }
        for (size_t offset = 0; offset < block; offset += 4) {
            const size_t place = row * block + offset;
            const float *w = matrix->values + start * block + offset, *value = x;
            const uint8_t *steps = matrix->steps + start, *steps_end = matrix->steps + end;
            Four sums[4] = {0};
            if (matrix->bias) sums[0] = *(const Four *)(matrix->bias + place);
#if LANES == 8
            if (block == 4) sums[1] = (Four)multiply_pairs_of_blocks(&w, &steps, &value, end - start);
#elif LANES == 16
            if (block == 4) sums[1] = (Four)multiply_four_blocks(&w, &steps, &value, end - start);
#endif
            for (; steps + 4 <= steps_end; steps += 4, w += 4 * block) {
                PLACES_OF_FOUR(steps);
                EACH(i, 4) sums[i] += *(const Four *)(w + i * block) * value[places[i]];
                value += places[3];
            }
            for (; steps < steps_end; steps++, w += block) sums[0] += *(const Four *)w * *(value += *steps);
            Four sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
            EACH(i, 4)
                out[place + i] = sum[i] < matrix->low ? matrix->low : sum[i] > matrix->high ? matrix->high : sum[i];
        }
    }
}

#undef EACH
#undef BLOCK_OF_FOUR
#undef SINGLE_ROW
#undef WIDTH
