#include "matrix.h"

#include <stdlib.h>
#include <string.h>

#define JOIN(x, y) x##_##y
#define NAME_OF(x, y) JOIN(x, y)

#define KERNELS(name, lanes, set)                                                                               \
    {name, lanes, 3, multiply_##set, copy_lines_##set, multiply_row_##set, lstm_##set, gru_##set, gru_linear_##set, \
     gru_reset_##set}

#define LANES 4
#define NAME(x) NAME_OF(x, plain)
#include "tile.h"
#include "cell.h"
#undef LANES
#undef NAME

static const Kernels PLAIN = KERNELS("plain C", 4, plain);

#if defined(__x86_64__)

#pragma GCC push_options
#pragma GCC target("avx2,fma")
#define LANES 8
#define NAME(x) NAME_OF(x, avx2)
#include "tile.h"
#include "cell.h"
#undef LANES
#undef NAME
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx2,fma,prefer-vector-width=512")
#define LANES 16
#define NAME(x) NAME_OF(x, avx512)
#include "tile.h"
#include "cell.h"
#undef LANES
#undef NAME
#pragma GCC pop_options

static const Kernels AVX2 = KERNELS("AVX2", 8, avx2);
static const Kernels AVX512 = KERNELS("AVX-512", 16, avx512);

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
