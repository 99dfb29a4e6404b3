#include "matrix.h"

#include <stdlib.h>
#include <string.h>

#include "transpose.h"

#define JOIN(x, y) x##_##y
#define NAME_OF(x, y) JOIN(x, y)

#define KERNELS(name, lanes, vectors, set)                                                              \
    {name, lanes, vectors, multiply_##set, copy_lines_##set, multiply_row_##set, multiply_patches_##set, \
     lstm_##set, gru_##set, gru_linear_##set, gru_reset_##set, depthwise_##set}

/* A vector of those, where `mask` is, and of these elsewhere. */
#define SELECT(mask, those, these) ((Four)(((mask) & (FourBits)(those)) | (~(mask) & (FourBits)(these))))

/* `places` of four blocks, from the place of the block before them: sums that don't wait for each other. */
#define PLACES_OF_FOUR(steps)                                                                                       \
    const size_t second = (size_t)(steps)[0] + (steps)[1], third = second + (steps)[2];                             \
    const size_t places[] = {(steps)[0], second, third, third + (steps)[3]}

#define LANES 4
#define MOST 3
#define EVEN {0, 2, 5, 7}
#define LARGER(x, y) SELECT((x) > (y), x, y)
#define SMALLER(x, y) SELECT((x) < (y), x, y)
#define NAME(x) NAME_OF(x, plain)
#include "tile.h"
#include "patches.h"
#include "cell.h"
#include "depthwise.h"
#undef LANES
#undef MOST
#undef EVEN
#undef LARGER
#undef SMALLER
#undef NAME

static const Kernels PLAIN = KERNELS("plain C", 4, 3, plain);

#if defined(__x86_64__)
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx2,fma")
#define LANES 8
#define MOST 3
#define EVEN {0, 2, 4, 6, 9, 11, 13, 15}
#define LARGER(x, y) (Vector_avx2) _mm256_max_ps((__m256)(x), (__m256)(y))
#define SMALLER(x, y) (Vector_avx2) _mm256_min_ps((__m256)(x), (__m256)(y))
#define NAME(x) NAME_OF(x, avx2)
#include "tile.h"
#include "patches.h"
#include "cell.h"
#include "depthwise.h"
#undef LANES
#undef MOST
#undef EVEN
#undef LARGER
#undef SMALLER
#undef NAME
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx2,fma,prefer-vector-width=512")
#define LANES 16
#define MOST 4
#define EVEN {0, 2, 4, 6, 8, 10, 12, 14, 17, 19, 21, 23, 25, 27, 29, 31}
#define LARGER(x, y) (Vector_avx512) _mm512_max_ps((__m512)(x), (__m512)(y))
#define SMALLER(x, y) (Vector_avx512) _mm512_min_ps((__m512)(x), (__m512)(y))
#define NAME(x) NAME_OF(x, avx512)
#include "tile.h"
#include "patches.h"
#include "cell.h"
#include "depthwise.h"
#undef LANES
#undef MOST
#undef EVEN
#undef LARGER
#undef SMALLER
#undef NAME
#pragma GCC pop_options

static const Kernels AVX2 = KERNELS("AVX2", 8, 3, avx2);
static const Kernels AVX512 = KERNELS("AVX-512", 16, 4, avx512);

/* TRTNODE_SPARSE_ISA holds the kernels to lesser instructions, for tests. */
const Kernels *best_kernels(void) {
    const char *held = getenv("TRTNODE_SPARSE_ISA");
    if (held && strcmp(held, "plain") == 0) return &PLAIN;
    __builtin_cpu_init();
    int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (avx2 && __builtin_cpu_supports("avx512f") && !(held && strcmp(held, "avx2") == 0)) return &AVX512;
    return avx2 ? &AVX2 : &PLAIN;
}

#elif defined(__aarch64__)
#include <arm_neon.h>

#define LANES 4
#define MOST 6
#define EVEN {0, 2, 5, 7}
#define LARGER(x, y) (Vector_neon) vmaxq_f32((float32x4_t)(x), (float32x4_t)(y))
#define SMALLER(x, y) (Vector_neon) vminq_f32((float32x4_t)(x), (float32x4_t)(y))
#define NAME(x) NAME_OF(x, neon)
#include "tile.h"
#include "patches.h"
#include "cell.h"
#include "depthwise.h"
#undef LANES
#undef MOST
#undef EVEN
#undef LARGER
#undef SMALLER
#undef NAME

static const Kernels NEON = KERNELS("NEON", 4, 6, neon);

const Kernels *best_kernels(void) {
    const char *held = getenv("TRTNODE_SPARSE_ISA");
    return held && strcmp(held, "plain") == 0 ? &PLAIN : &NEON; /* each processor of aarch64 has it */
}

#else

const Kernels *best_kernels(void) { return &PLAIN; }

#endif
