#include "matrix.h"

#include <stdlib.h>
#include <string.h>

#define JOIN(x, y) x##_##y
#define NAME_OF(x, y) JOIN(x, y)

#define LANES 4
#define NAME(x) NAME_OF(x, plain)
#include "tile.h"
#undef LANES
#undef NAME

static const Kernels PLAIN = {"plain C", 4, 3, multiply_plain, copy_lines_plain, multiply_row_plain};

#if defined(__x86_64__)

#pragma GCC push_options
#pragma GCC target("avx2,fma")
#define LANES 8
#define NAME(x) NAME_OF(x, avx2)
#include "tile.h"
#undef LANES
#undef NAME
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx2,fma,prefer-vector-width=512")
#define LANES 16
#define NAME(x) NAME_OF(x, avx512)
#include "tile.h"
#undef LANES
#undef NAME
#pragma GCC pop_options

static const Kernels AVX2 = {"AVX2", 8, 3, multiply_avx2, copy_lines_avx2, multiply_row_avx2};
static const Kernels AVX512 = {"AVX-512", 16, 3, multiply_avx512, copy_lines_avx512, multiply_row_avx512};

/* TRTNODE_SPARSE_ISA holds the kernels to lesser instructions, for tests. */
const Kernels *best_kernels(void) {
    const char *held = getenv("TRTNODE_SPARSE_ISA");
    if (held && strcmp(held, "plain") == 0) return &PLAIN;
    __builtin_cpu_init();
    int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (avx2 && __builtin_cpu_supports("avx512f") && !(held && strcmp(held, "avx2") == 0)) return &AVX512;
    return avx2 ? &AVX2 : &PLAIN;
}

#else

const Kernels *best_kernels(void) { return &PLAIN; }

#endif
