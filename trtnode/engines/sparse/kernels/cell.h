/* One instruction set's gates of LSTM and GRU. Defined before: LANES, and NAME(x) that makes a name of its own. */

static inline NAME(Vector) NAME(load_units)(const float *from, size_t count) {
    if (count >= LANES) return *(const NAME(Vector) *)from;
#if LANES == 16
    return (NAME(Vector))_mm512_maskz_loadu_ps((1u << count) - 1, from);
#else
    float values[LANES] = {0};
    for (size_t i = 0; i < count; i++) values[i] = from[i];
    return *(const NAME(Vector) *)values;
#endif
}

static inline void NAME(store_units)(float *to, NAME(Vector) given, size_t count) {
    if (count >= LANES)
        *(NAME(Vector) *)to = given;
    else
#if LANES == 16
        _mm512_mask_storeu_ps(to, (1u << count) - 1, (__m512)given);
#else
        for (size_t i = 0; i < count; i++) to[i] = given[i];
#endif
}

/* e^x = 2^n e^r with |r| <= log(2) / 2, and a Taylor polynomial of r. Adding 1.5 × 2^23 rounds, and leaves n in the
   lowest bits. x is kept where 2^n is a normal number; NaN stays. */
static inline NAME(Vector) NAME(exponential)(NAME(Vector) x) {
    const NAME(Vector) rounder = NAME(spread)(12582912.0f);
    x = NAME(clip)(x, -87.0f, 87.0f);
    NAME(Vector) shifted = x * 1.44269504f + rounder, n = shifted - rounder;
    NAME(Vector) r = x - n * 0.693359375f + n * 2.12194440e-4f; /* log(2) in two parts: the product of the first is exact */
    NAME(Vector) sum = NAME(spread)(1.0f / 5040);
    sum = sum * r + 1.0f / 720;
    sum = sum * r + 1.0f / 120;
    sum = sum * r + 1.0f / 24;
    sum = sum * r + 1.0f / 6;
    sum = sum * r + 0.5f;
    sum = sum * r + 1.0f;
    sum = sum * r + 1.0f;
    NAME(Mask) power = ((NAME(Mask))shifted - (NAME(Mask))rounder + 127) << 23;
    return sum * (NAME(Vector))power;
}

static inline NAME(Vector) NAME(sigmoid)(NAME(Vector) x) { return 1.0f / (1.0f + NAME(exponential)(-x)); }

static inline NAME(Vector) NAME(tangent)(NAME(Vector) x) { return 2.0f * NAME(sigmoid)(2.0f * x) - 1.0f; }

#define EACH_VECTOR(u, count)                                                                                \
    for (size_t u = units->first, count = units->last - u; u < units->last; u += LANES, count = units->last - u)

/* The two parts of a gate for units from u on, and their sum. */
#define OF_INPUT(gate) NAME(load_units)(units->inputs + (gate) * units->hidden + u, count)
#define OF_STATE(gate) NAME(load_units)(units->sums + (gate) * units->sums_step + u - units->first, count)
#define GATE(gate) (OF_INPUT(gate) + OF_STATE(gate))

static void NAME(lstm)(const Units *units) {
    EACH_VECTOR(u, count) {
        NAME(Vector) in = NAME(sigmoid)(GATE(0)), out = NAME(sigmoid)(GATE(1)), forget = NAME(sigmoid)(GATE(2));
        NAME(Vector) cell = forget * NAME(load_units)(units->cell + u, count) + in * NAME(tangent)(GATE(3));
        NAME(store_units)(units->cell + u, cell, count);
        NAME(store_units)(units->out + u, out * NAME(tangent)(cell), count);
    }
}

static inline NAME(Vector) NAME(gru_mix)(NAME(Vector) update, NAME(Vector) hidden, NAME(Vector) before) {
    return (1.0f - update) * hidden + update * before;
}

static void NAME(gru)(const Units *units) {
    EACH_VECTOR(u, count) {
        NAME(Vector) update = NAME(sigmoid)(GATE(0)), before = NAME(load_units)(units->before + u, count);
        NAME(store_units)(units->out + u, NAME(gru_mix)(update, NAME(tangent)(GATE(2)), before), count);
    }
}

static void NAME(gru_linear)(const Units *units) {
    EACH_VECTOR(u, count) {
        NAME(Vector) update = NAME(sigmoid)(GATE(0)), before = NAME(load_units)(units->before + u, count);
        NAME(Vector) hidden = NAME(tangent)(OF_INPUT(2) + NAME(sigmoid)(GATE(1)) * OF_STATE(2));
        NAME(store_units)(units->out + u, NAME(gru_mix)(update, hidden, before), count);
    }
}

static void NAME(gru_reset)(const Units *units) {
    EACH_VECTOR(u, count) {
        NAME(Vector) reset = NAME(sigmoid)(GATE(1)) * NAME(load_units)(units->before + u, count);
        NAME(store_units)(units->out + u, reset, count);
    }
}

#undef EACH_VECTOR
#undef OF_INPUT
#undef OF_STATE
#undef GATE
