/* One instruction set's product of a patched matrix and a single column. Defined before: LANES, and NAME(x). */

typedef struct {
    const float *values;
    const uint8_t *order, *places;
} NAME(Cursor);

#if LANES == 16

typedef struct {
    __m512 quarters[PATCH_COLUMNS / 16];
} NAME(Columns);

typedef __m512 NAME(Sums); /* four parts of the sums of four rows */

static inline NAME(Columns) NAME(load_columns)(const float *x) {
    NAME(Columns) columns;
    for (size_t i = 0; i < PATCH_COLUMNS / 16; i++) columns.quarters[i] = _mm512_loadu_ps(x + 16 * i);
    return columns;
}

/* The columns at the places of four vectors: lane j has block j of each vector. A permutation looks at the lowest five
   bits of a place, and one within lanes takes half of the time of one across them. */
static inline __m512 NAME(gather)(const uint8_t *places, const NAME(Columns) *x) {
    const __m512i shifts = _mm512_set_epi32(24, 24, 24, 24, 16, 16, 16, 16, 8, 8, 8, 8, 0, 0, 0, 0);
    const __m512i four = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)places));
    const __m512i each = _mm512_srlv_epi32(four, shifts);
    const __m512 first = _mm512_permutex2var_ps(x->quarters[0], each, x->quarters[1]);
    const __m512 second = _mm512_permutex2var_ps(x->quarters[2], each, x->quarters[3]);
    return _mm512_mask_blend_ps(_mm512_test_epi32_mask(each, _mm512_set1_epi32(SECOND_HALF)), first, second);
}

/* Value i of each lane, in all of the lane. */
static inline __m512 NAME(spread_in_lanes)(__m512 gathered, size_t i) {
    switch (i) {
    case 0: return _mm512_permute_ps(gathered, 0x00);
    case 1: return _mm512_permute_ps(gathered, 0x55);
    case 2: return _mm512_permute_ps(gathered, 0xaa);
    default: return _mm512_permute_ps(gathered, 0xff);
    }
}

/* Adds the products of `count` vectors. */
static inline __attribute__((always_inline)) NAME(Sums) NAME(add_row)(NAME(Sums) sums, const NAME(Cursor) *at,
                                                                      size_t count, const NAME(Columns) *x) {
    __m512 gathered = sums;
    _Pragma("GCC unroll 16") for (size_t i = 0; i < count; i++) {
        if (i % 4 == 0) gathered = NAME(gather)(at->places + 4 * i, x);
        sums = _mm512_fmadd_ps(_mm512_loadu_ps(at->values + 16 * i), NAME(spread_in_lanes)(gathered, i % 4), sums);
    }
    return sums;
}

static inline Four NAME(fold)(NAME(Sums) sums) {
    return (Four)((_mm512_extractf32x4_ps(sums, 0) + _mm512_extractf32x4_ps(sums, 1)) +
                  (_mm512_extractf32x4_ps(sums, 2) + _mm512_extractf32x4_ps(sums, 3)));
}

#else

typedef const float *NAME(Columns);

typedef Four NAME(Sums);

static inline NAME(Columns) NAME(load_columns)(const float *x) { return x; }

static inline NAME(Sums) NAME(add_row)(NAME(Sums) sums, const NAME(Cursor) *at, size_t count, const NAME(Columns) *x) {
    for (size_t i = 0; i < 4 * count; i++) {
        const size_t column = at->places[i] % SECOND_HALF + (at->places[i] / SECOND_HALF) * (PATCH_COLUMNS / 2);
        sums += *(const Four *)(at->values + 4 * i) * (*x)[column];
    }
    return sums;
}

static inline Four NAME(fold)(NAME(Sums) sums) { return sums; }

#endif

/* As many next rows as hold so many vectors each: a constant, so that the processor needn't guess where a row ends. */
#define ROWS_OF(vectors)                                                                   \
    for (size_t rows = counts[(vectors) - 1]; rows; rows--) {                              \
        sums[*at.order] = NAME(add_row)(sums[*at.order], &at, vectors, &columns);          \
        at.order++, at.values += 16 * (vectors), at.places += 4 * (vectors);               \
    }

/* Sums of the rows of patches `first` to `last`. */
static void NAME(multiply_patches)(const Sparse *matrix, const float *x, float *out, size_t first, size_t last) {
    const size_t across = matrix->columns / PATCH_COLUMNS;
    for (size_t row = first; row < last; row++) {
        NAME(Sums) sums[PATCH_ROWS] = {0};
        NAME(Cursor) at = {.values = matrix->values + 16 * (size_t)matrix->starts[row],
                           .places = matrix->steps + PATCH_HEAD * across * row + 4 * (size_t)matrix->starts[row]};
        for (size_t patch = 0; patch < across; patch++) {
            const NAME(Columns) columns = NAME(load_columns)(x + patch * PATCH_COLUMNS);
            const uint8_t *counts = at.places;
            at.order = counts + MOST_VECTORS, at.places = at.order + PATCH_ROWS;
            ROWS_OF(1) ROWS_OF(2) ROWS_OF(3) ROWS_OF(4) ROWS_OF(5) ROWS_OF(6) ROWS_OF(7) ROWS_OF(8)
            ROWS_OF(9) ROWS_OF(10) ROWS_OF(11) ROWS_OF(12) ROWS_OF(13) ROWS_OF(14) ROWS_OF(15) ROWS_OF(16)
        }
        for (size_t i = 0, block_row = row * PATCH_ROWS; i < PATCH_ROWS; i++, block_row++)
            NAME(write_four)(matrix, NAME(fold)(sums[i]), 4 * block_row, out);
    }
}

#undef ROWS_OF
