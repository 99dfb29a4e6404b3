/* Matrices whose rows and columns change places. */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef float Four __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t FourBits __attribute__((vector_size(16), aligned(4), may_alias));

static inline void transpose_four(const float *from, size_t from_step, float *to, size_t to_step) {
    const Four a = *(const Four *)from, b = *(const Four *)(from + from_step);
    const Four c = *(const Four *)(from + 2 * from_step), d = *(const Four *)(from + 3 * from_step);
    const Four low_ab = __builtin_shuffle(a, b, (FourBits){0, 4, 1, 5});
    const Four low_cd = __builtin_shuffle(c, d, (FourBits){0, 4, 1, 5});
    const Four high_ab = __builtin_shuffle(a, b, (FourBits){2, 6, 3, 7});
    const Four high_cd = __builtin_shuffle(c, d, (FourBits){2, 6, 3, 7});
    *(Four *)to = __builtin_shuffle(low_ab, low_cd, (FourBits){0, 1, 4, 5});
    *(Four *)(to + to_step) = __builtin_shuffle(low_ab, low_cd, (FourBits){2, 3, 6, 7});
    *(Four *)(to + 2 * to_step) = __builtin_shuffle(high_ab, high_cd, (FourBits){0, 1, 4, 5});
    *(Four *)(to + 3 * to_step) = __builtin_shuffle(high_ab, high_cd, (FourBits){2, 3, 6, 7});
}

/* to[column × to_step + row] = from[row × from_step + column]. Cache lines are written whole: 16 rows at a time. */
static inline void transpose(const float *from, size_t from_step, size_t rows, size_t columns, float *to,
                             size_t to_step) {
    const size_t even_rows = rows / 4 * 4, even_columns = columns / 4 * 4;
    for (size_t begin = 0; begin < even_rows; begin += 16)
        for (size_t column = 0; column < even_columns; column += 4)
            for (size_t row = begin; row < begin + 16 && row < even_rows; row += 4)
                transpose_four(from + row * from_step + column, from_step, to + column * to_step + row, to_step);
    for (size_t row = 0; row < rows; row++)
        for (size_t column = row < even_rows ? even_columns : 0; column < columns; column++)
            to[column * to_step + row] = from[row * from_step + column];
}
