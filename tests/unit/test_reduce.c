/* SPDX-License-Identifier: Apache-2.0 */
/* test_reduce.c - every instruction set of this machine against one slow, obvious reference.
 *
 * The reference works on one element at a time and shares no code with src/reduce: it converts
 * halves by arithmetic on their fields and rounds them by searching the nearest value. Results must
 * be equal bit for bit. Only which of several NaNs an addition or multiplication returns is
 * unspecified, because compilers may swap its operands.
 *
 * Start reading at check_job(). */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "reduce/reduce.h"
#include "unit_case.h"

#define SOURCES_MAX 9
#define TARGETS_MAX 4
#define COUNT_MAX   4097
#define BUFFER_SIZE (COUNT_MAX * 8 + 192)
#define GUARD       0xa5

static const hvd_reduce_t ops[] = {HVD_SUM, HVD_AVERAGE, HVD_MIN, HVD_MAX, HVD_PRODUCT};

/* ---- a small generator, so that a failure repeats ---- */

static uint64_t random_state = 88172645463325252u;

static uint64_t random_bits(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state * 2685821657736338717u;
}

/* ---- the reference ---- */

static float ref_half_to_float(uint16_t half)
{
    const int exponent = (half >> 10) & 31, fraction = half & 0x3ff;
    const float sign = half & 0x8000 ? -1.0f : 1.0f;

    if (exponent == 31 && fraction != 0) {
        uint32_t bits = ((uint32_t)(half & 0x8000) << 16) | 0x7fc00000 | ((uint32_t)fraction << 13);
        float nan;
        memcpy(&nan, &bits, sizeof(nan));
        return nan;
    }
    if (exponent == 31)
        return sign * INFINITY;
    if (exponent == 0)
        return sign * ldexpf((float)fraction, -24);
    return sign * ldexpf((float)(fraction + 1024), exponent - 25);
}

static double half_values[0x7c01]; /* of the positive halves; infinity stands for the next step */

static int fill_half_values(void **state)
{
    (void)state;
    for (uint16_t half = 0; half < 0x7c00; half++)
        half_values[half] = (double)ref_half_to_float(half);
    half_values[0x7c00] = 65536.0;
    return 0;
}

/* Positive halves are ordered like their bits: find the two around the value, take the nearer. */
static uint16_t ref_float_to_half(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    const uint32_t sign = bits >> 31 ? 0x8000 : 0;

    if (isnan(value))
        return (uint16_t)(sign | 0x7e00 | ((bits >> 13) & 0x3ff));
    const double x = fabs((double)value);
    if (x >= 65520.0)
        return (uint16_t)(sign | 0x7c00);
    uint16_t low = 0, high = 0x7c00;
    while (high - low > 1) {
        uint16_t middle = (uint16_t)((low + high) / 2);
        if (half_values[middle] <= x)
            low = middle;
        else
            high = middle;
    }
    const double below = x - half_values[low], above = half_values[high] - x;
    if (below < above || (below <= above && low % 2 == 0))
        return (uint16_t)(sign | low);
    return (uint16_t)(sign | high);
}

static float ref_bfloat_to_float(uint16_t bfloat)
{
    return reduce_float_of((uint32_t)bfloat << 16);
}

static uint16_t ref_float_to_bfloat(float value)
{
    const uint32_t bits = reduce_bits_of(value);
    const uint32_t low = bits & 0xffff;
    uint16_t high = (uint16_t)(bits >> 16);

    if (isnan(value))
        return (uint16_t)(high | 0x40);
    if (low > 0x8000 || (low == 0x8000 && high % 2 == 1))
        high++;
    return high;
}

static double ref_double_op(hvd_reduce_t op, double a, double b)
{
    volatile double result; /* one rounding per operation, whatever the compiler would fuse */
    switch (op) {
    case HVD_AVERAGE:
    case HVD_SUM: result = a + b; return result;
    case HVD_PRODUCT: result = a * b; return result;
    case HVD_MIN: return isnan(a) || a < b ? a : b;
    case HVD_MAX: return isnan(a) || a > b ? a : b;
    case HVD_ADASUM:
    case HVD_REDUCE_COUNT: break;
    }
    fail();
    return 0;
}

/* A sum or product of floats, rounded to double and then to float, has the bits of one rounding. */
static float ref_float_op(hvd_reduce_t op, float a, float b)
{
    if (op == HVD_MIN || op == HVD_MAX)
        return isnan(a) || (op == HVD_MIN ? a < b : a > b) ? a : b;
    return (float)ref_double_op(op, (double)a, (double)b);
}

struct integer_type {
    int bits;
    bool is_signed;
};

static struct integer_type integer_type(hvd_dtype_t dtype)
{
    switch (dtype) {
    case HVD_UINT8: return (struct integer_type){8, false};
    case HVD_INT8: return (struct integer_type){8, true};
    case HVD_UINT16: return (struct integer_type){16, false};
    case HVD_INT16: return (struct integer_type){16, true};
    case HVD_INT32: return (struct integer_type){32, true};
    case HVD_INT64: return (struct integer_type){64, true};
    case HVD_FLOAT16:
    case HVD_FLOAT32:
    case HVD_FLOAT64:
    case HVD_BOOL:
    case HVD_BFLOAT16:
    case HVD_DTYPE_COUNT: break;
    }
    fail();
    return (struct integer_type){0, false};
}

static int64_t wrap(struct integer_type type, uint64_t value)
{
    if (type.bits == 64)
        return (int64_t)value;
    const uint64_t span = (uint64_t)1 << type.bits;
    value &= span - 1;
    if (type.is_signed && value >= span / 2)
        return (int64_t)value - (int64_t)span;
    return (int64_t)value;
}

static int64_t ref_truncate(struct integer_type type, double value)
{
    const double span = ldexp(1.0, type.is_signed ? type.bits - 1 : type.bits);
    const int64_t high = type.bits == 64
                             ? INT64_MAX
                             : ((int64_t)1 << (type.is_signed ? type.bits - 1 : type.bits)) - 1;
    const int64_t low = type.is_signed ? -high - 1 : 0;

    if (isnan(value))
        return 0;
    value = trunc(value);
    if (value >= span)
        return high;
    if (value < (double)low)
        return low;
    return (int64_t)value;
}

static int64_t ref_integer_op(struct integer_type type, hvd_reduce_t op, int64_t a, int64_t b)
{
    switch (op) {
    case HVD_AVERAGE:
    case HVD_SUM: return wrap(type, (uint64_t)a + (uint64_t)b);
    case HVD_PRODUCT: return wrap(type, (uint64_t)a * (uint64_t)b);
    case HVD_MIN: return a < b ? a : b;
    case HVD_MAX: return a > b ? a : b;
    case HVD_ADASUM:
    case HVD_REDUCE_COUNT: break;
    }
    fail();
    return 0;
}

static int64_t get_integer(struct integer_type type, const unsigned char *p)
{
    uint64_t bits = 0;
    memcpy(&bits, p, (size_t)type.bits / 8); /* little endian, as all our platforms */
    return wrap(type, bits);
}

static size_t dtype_bytes(hvd_dtype_t dtype)
{
    static const size_t bytes[HVD_DTYPE_COUNT] = {1, 1, 2, 2, 4, 8, 2, 4, 8, 1, 2};
    return bytes[dtype];
}

static bool is_float(hvd_dtype_t dtype)
{
    return dtype == HVD_FLOAT16 || dtype == HVD_FLOAT32 || dtype == HVD_FLOAT64 ||
           dtype == HVD_BFLOAT16;
}

static bool is_one(double x)
{
    return x >= 1.0 && x <= 1.0;
}

static float get_float(hvd_dtype_t dtype, const unsigned char *p)
{
    uint16_t half;
    float value;
    if (dtype == HVD_FLOAT32) {
        memcpy(&value, p, sizeof(value));
        return value;
    }
    memcpy(&half, p, sizeof(half));
    return dtype == HVD_FLOAT16 ? ref_half_to_float(half) : ref_bfloat_to_float(half);
}

static void put_float(hvd_dtype_t dtype, float value, unsigned char *p)
{
    if (dtype == HVD_FLOAT32) {
        memcpy(p, &value, sizeof(value));
        return;
    }
    uint16_t half = dtype == HVD_FLOAT16 ? ref_float_to_half(value) : ref_float_to_bfloat(value);
    memcpy(p, &half, sizeof(half));
}

static float ref_float_scale(float value, double factor)
{
    volatile float result = value;
    if (!is_one(factor))
        result = value * (float)factor;
    return result;
}

static double ref_double_scale(double value, double factor)
{
    volatile double result = value;
    if (!is_one(factor))
        result = value * factor;
    return result;
}

static void ref_integer_element(const struct reduce_job *job, size_t at, unsigned char *ret)
{
    const struct integer_type type = integer_type(job->dtype);
    int64_t sum = 0;
    for (int32_t s = 0; s < job->source_count; s++) {
        int64_t x = get_integer(type, (const unsigned char *)job->sources[s] + at);
        if (!is_one(job->prescale))
            x = ref_truncate(type, (double)x * job->prescale);
        sum = s == 0 ? x : ref_integer_op(type, job->op, sum, x);
    }
    if (!is_one(job->postscale))
        sum = ref_truncate(type, (double)sum * job->postscale);
    memcpy(ret, &sum, (size_t)type.bits / 8);
}

static void ref_bool_element(const struct reduce_job *job, size_t at, unsigned char *ret)
{
    const bool is_or = job->op == HVD_SUM || job->op == HVD_AVERAGE || job->op == HVD_MAX;
    bool result = !is_or;
    for (int32_t s = 0; s < job->source_count; s++) {
        bool x = ((const unsigned char *)job->sources[s])[at] != 0;
        result = is_or ? result || x : result && x;
    }
    *ret = result;
}

static void ref_element(const struct reduce_job *job, size_t i, unsigned char *ret)
{
    const size_t bytes = dtype_bytes(job->dtype), at = i * bytes;

    if (job->source_count == 1 && is_one(job->prescale) && is_one(job->postscale)) {
        memcpy(ret, (const unsigned char *)job->sources[0] + at, bytes);
    } else if (job->dtype == HVD_BOOL) {
        ref_bool_element(job, at, ret);
    } else if (job->dtype == HVD_FLOAT64) {
        double sum = 0, x;
        for (int32_t s = 0; s < job->source_count; s++) {
            memcpy(&x, (const unsigned char *)job->sources[s] + at, sizeof(x));
            x = ref_double_scale(x, job->prescale);
            sum = s == 0 ? x : ref_double_op(job->op, sum, x);
        }
        sum = ref_double_scale(sum, job->postscale);
        memcpy(ret, &sum, sizeof(sum));
    } else if (is_float(job->dtype)) {
        float sum = 0, x;
        for (int32_t s = 0; s < job->source_count; s++) {
            x = get_float(job->dtype, (const unsigned char *)job->sources[s] + at);
            x = ref_float_scale(x, job->prescale);
            sum = s == 0 ? x : ref_float_op(job->op, sum, x);
        }
        put_float(job->dtype, ref_float_scale(sum, job->postscale), ret);
    } else {
        ref_integer_element(job, at, ret);
    }
}

static bool is_nan_element(hvd_dtype_t dtype, const unsigned char *p)
{
    double value;
    if (!is_float(dtype))
        return false;
    if (dtype != HVD_FLOAT64)
        return isnan(get_float(dtype, p));
    memcpy(&value, p, sizeof(value));
    return isnan(value);
}

/* Every computed NaN is quiet, whichever of several it came from. */
static bool is_same(const struct reduce_job *job, const unsigned char *want,
                    const unsigned char *have)
{
    const bool is_exact = (job->op == HVD_MIN || job->op == HVD_MAX || job->source_count == 1) &&
                          is_one(job->prescale) && is_one(job->postscale);
    if (memcmp(want, have, dtype_bytes(job->dtype)) == 0)
        return true;
    return !is_exact && is_nan_element(job->dtype, want) && is_nan_element(job->dtype, have);
}

/* ---- inputs ---- */

static double pick_value(void)
{
    static const double special[] = {0.0,  -0.0, 1.0,   -1.0,   65504.0, 65519.9, 65520.0,
                                     6e-8, 3e-8, 1e-40, -1e-40, 3.4e38,  -3.4e38, 1e300,
                                     0.1,  1e-5, 2.5,   -7.75,  5.96e-8, 6.1e-5,  1e-310};
    const uint64_t r = random_bits();
    if (r % 64 == 0)
        return NAN;
    if (r % 64 == 1)
        return r & 64 ? INFINITY : -INFINITY;
    if (r % 8 == 2)
        return special[(r >> 8) % (sizeof(special) / sizeof(special[0]))];
    return (double)((int64_t)(r >> 20) - ((int64_t)1 << 43)) / (double)(1 << 30) / 64.0;
}

static void fill(hvd_dtype_t dtype, unsigned char *p, size_t count)
{
    const size_t bytes = dtype_bytes(dtype);
    for (size_t i = 0; i < count; i++, p += bytes) {
        uint64_t bits = random_bits() >> 8;
        double value = pick_value();
        if (dtype == HVD_BOOL)
            *p = bits % 8 == 0 ? (unsigned char)(bits >> 8) : bits % 8 < 4;
        else if (dtype == HVD_FLOAT64)
            memcpy(p, &value, bytes);
        else if (is_float(dtype) && bits % 8 != 0)
            put_float(dtype, (float)value, p);
        else /* any bit pattern, signalling NaNs included */
            memcpy(p, &bits, bytes);
    }
}

/* ---- one job on one instruction set against the reference ---- */

static unsigned char source_memory[SOURCES_MAX][BUFFER_SIZE];
static unsigned char target_memory[TARGETS_MAX][BUFFER_SIZE];
static unsigned char expected[COUNT_MAX * 8];

struct variant {
    enum reduce_isa isa;
    hvd_dtype_t dtype;
    hvd_reduce_t op;
    double prescale, postscale;
    int32_t sources, targets;
    size_t count, shift; /* shift: bytes of misalignment */
    bool is_in_place;
};

static void report(const struct variant *v, size_t i, int32_t target)
{
    fail_msg("isa %s dtype %d op %d pre %g post %g sources %d targets %d count %zu shift %zu "
             "in place %d: element %zu of target %d differs",
             reduce_isa_name(v->isa), (int)v->dtype, (int)v->op, v->prescale, v->postscale,
             v->sources, v->targets, v->count, v->shift, v->is_in_place, i, target);
}

static void check_target(const struct variant *v, const struct reduce_job *job, int32_t d)
{
    const size_t bytes = dtype_bytes(v->dtype);
    const unsigned char *have = job->targets[d];

    for (size_t i = 0; i < v->count; i++)
        if (!is_same(job, expected + i * bytes, have + i * bytes))
            report(v, i, d);
    if (v->is_in_place)
        return;
    for (size_t i = 0; i < 64; i++) {
        assert_int_equal(have[v->count * bytes + i], GUARD);
        assert_int_equal(have[-1 - (ptrdiff_t)i], GUARD);
    }
}

/* Sources have been filled at source_memory[s] + 64 + shift. */
static void check_job(const struct variant *v)
{
    const size_t bytes = dtype_bytes(v->dtype);
    const void *sources[SOURCES_MAX];
    void *targets[TARGETS_MAX];
    const struct reduce_job job = {
        .dtype = v->dtype,
        .op = v->op,
        .prescale = v->prescale,
        .postscale = v->postscale,
        .sources = sources,
        .source_count = v->sources,
        .targets = targets,
        .target_count = v->targets,
        .count = v->count,
    };

    for (int32_t s = 0; s < v->sources; s++)
        sources[s] = source_memory[s] + 64 + (v->shift * (size_t)(s + 1)) % 32;
    for (int32_t d = 0; d < v->targets; d++) {
        targets[d] = target_memory[d] + 64 + (v->shift * (size_t)(d + 3)) % 32;
        if (v->is_in_place && d < v->sources)
            memcpy(&targets[d], &sources[v->sources - 1 - d], sizeof(void *));
        else
            memset(target_memory[d], GUARD, v->count * bytes + 192);
    }
    for (size_t i = 0; i < v->count; i++)
        ref_element(&job, i, expected + i * bytes);
    reduce_run_isa(v->isa, &job);
    for (int32_t d = 0; d < v->targets; d++)
        check_target(v, &job, d);
}

static void fill_sources(hvd_dtype_t dtype, int32_t sources, size_t count)
{
    for (int32_t s = 0; s < sources; s++)
        fill(dtype, source_memory[s], count + 128 / dtype_bytes(dtype));
}

/* ---- tests ---- */

static const double scales[][2] = {{1.0, 1.0}, {1.0, 1.0 / 3.0}, {0.3, 1.0}, {-0.7, 2.25}};

static void check_shapes(enum reduce_isa isa, hvd_dtype_t dtype, hvd_reduce_t op, size_t count)
{
    for (size_t f = 0; f < sizeof(scales) / sizeof(scales[0]); f++) {
        struct variant v = {.isa = isa, .dtype = dtype, .op = op, .count = count};
        v.prescale = scales[f][0];
        v.postscale = scales[f][1];
        if (reduce_check(dtype, op, v.prescale, v.postscale) != HVD_OK)
            continue;
        for (v.sources = 1; v.sources <= SOURCES_MAX; v.sources++) {
            v.targets = (int32_t)(random_bits() % TARGETS_MAX) + 1;
            v.shift = random_bits() % 4 == 0 ? 0 : (size_t)(random_bits() % 32);
            v.is_in_place = random_bits() % 2 == 0;
            if (v.is_in_place) /* the sources were overwritten by the last job */
                fill_sources(dtype, v.sources, count);
            check_job(&v);
        }
    }
}

/* SUM at every count; the other ops share its loops and take turns above 9 elements. */
static void check_count(enum reduce_isa isa, size_t count)
{
    for (int dtype = 0; dtype < HVD_DTYPE_COUNT; dtype++)
        for (size_t o = 0; o < sizeof(ops) / sizeof(ops[0]); o++) {
            if (o > 0 && count > 9 && (count > 300 || o != 1 + count % 4))
                continue;
            fill_sources((hvd_dtype_t)dtype, SOURCES_MAX, count);
            check_shapes(isa, (hvd_dtype_t)dtype, ops[o], count);
        }
}

static void check_counts(enum reduce_isa isa)
{
    static const size_t large[] = {96, 127, 128, 129, 255, 257, 1000, COUNT_MAX};

    for (size_t count = 0; count <= 65; count++)
        check_count(isa, count);
    for (size_t i = 0; i < sizeof(large) / sizeof(large[0]); i++)
        check_count(isa, large[i]);
}

static void check_isa(void **state)
{
    enum reduce_isa isa = (enum reduce_isa)unit_case(state);
    if (!reduce_has_isa(isa))
        skip();
    check_counts(isa);
}

/* Every number of sources with every number of targets, in place and not, through the straight
 * copies of SUM and the loop of the others. */
static void test_sources_by_targets(void **state)
{
    (void)state;
    for (int isa = 0; isa < REDUCE_ISA_COUNT; isa++)
        for (int dtype = 0; dtype < HVD_DTYPE_COUNT; dtype++)
            for (int i = 0; i < SOURCES_MAX * TARGETS_MAX * 4; i++) {
                struct variant v = {
                    .isa = (enum reduce_isa)isa,
                    .dtype = (hvd_dtype_t)dtype,
                    .op = i % 3 == 0 ? HVD_MAX : HVD_SUM,
                    .prescale = 1.0,
                    .sources = i / 4 / TARGETS_MAX + 1,
                    .targets = i / 4 % TARGETS_MAX + 1,
                    .count = 257 + (size_t)(i % 7), /* four of the widest vectors, and a rest */
                    .is_in_place = i % 2 == 0,
                };
                const bool can_scale = reduce_check(v.dtype, v.op, 1.0, 0.25) == HVD_OK;
                v.postscale = i % 4 >= 2 && can_scale ? 0.25 : 1.0;
                if (!reduce_has_isa(v.isa))
                    continue;
                fill_sources(v.dtype, v.sources, v.count);
                check_job(&v);
            }
}

static void test_many_sources_and_targets(void **state)
{
    enum { COUNT = 37, MANY = REDUCE_SOURCES_MAX };
    static float memory[MANY][COUNT];
    const void *sources[MANY];
    void *targets[MANY];
    (void)state;

    for (int isa = 0; isa < REDUCE_ISA_COUNT; isa++) {
        if (!reduce_has_isa((enum reduce_isa)isa))
            continue;
        for (int s = 0; s < MANY; s++) {
            sources[s] = targets[s] = memory[s];
            for (int i = 0; i < COUNT; i++)
                memory[s][i] = (float)(s + i);
        }
        const struct reduce_job job = {HVD_FLOAT32, HVD_AVERAGE, 1.0,  0.5,  sources,
                                       MANY,        targets,     MANY, COUNT};
        reduce_run_isa((enum reduce_isa)isa, &job);
        for (int s = 0; s < MANY; s++)
            for (int i = 0; i < COUNT; i++)
                assert_true(memory[s][i] == (float)(MANY * (MANY - 1) / 2 + MANY * i) * 0.5f);
    }
}

/* Figures of the contract: truncation toward zero, after each scaling. */
static void test_integer_scaling(void **state)
{
    static const struct {
        double prescale, postscale;
        int32_t want[3];
    } cases[] = {{0.5, 1.0, {2, 4, -2}},
                 {0.5, 1.5, {3, 6, -3}},
                 {1.0, 0.3, {1, 3, -1}},
                 {1.0, 0.5, {3, 5, -3}},
                 {1.0, 1e12, {INT32_MAX, INT32_MAX, INT32_MIN}},
                 {-1e300, 1.0, {0, 0, -2}}, /* limits, then the sum wraps */
                 {1.0, (double)NAN, {0, 0, 0}}};
    const int32_t input[3] = {3, 5, -3};
    const void *sources[2] = {input, input};
    (void)state;

    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        int32_t result[3];
        void *targets[1] = {result};
        const struct reduce_job job = {
            HVD_INT32, HVD_SUM, cases[c].prescale, cases[c].postscale, sources, 2, targets, 1, 3};
        reduce_run(&job);
        assert_memory_equal(result, cases[c].want, sizeof(result));
    }
}

static void test_integer_limits(void **state)
{
    int64_t wide[] = {INT64_MAX, INT64_MIN, 1000, -1000};
    int8_t narrow[] = {100, -100, 127, -128};
    uint8_t bytes[] = {0, 1, 200, 255};
    (void)state;

    reduce_scale(HVD_INT64, wide, 4, 2.0);
    assert_true(wide[0] == INT64_MAX && wide[1] == INT64_MIN && wide[2] == 2000);
    reduce_scale(HVD_INT8, narrow, 4, 1.5);
    assert_true(narrow[0] == 127 && narrow[1] == -128);
    wide[0] = INT64_MIN; /* exactly one too many */
    reduce_scale(HVD_INT64, wide, 1, -1.0);
    assert_true(wide[0] == INT64_MAX);
    narrow[0] = -128;
    reduce_scale(HVD_INT8, narrow, 1, -1.0);
    assert_int_equal(narrow[0], 127);
    bytes[2] = 128;
    reduce_scale(HVD_UINT8, bytes + 2, 1, 2.0);
    assert_int_equal(bytes[2], 255);
    reduce_scale(HVD_UINT8, bytes, 4, -0.5);
    assert_true(bytes[0] == 0 && bytes[1] == 0 && bytes[2] == 0 && bytes[3] == 0);
}

static void test_scale_in_place(void **state)
{
    float floats[19];
    int16_t shorts[3] = {1, 2, 3};
    (void)state;

    for (int i = 0; i < 19; i++)
        floats[i] = (float)i * 0.37f;
    reduce_scale(HVD_FLOAT32, floats, 19, 1.0 / 3.0);
    for (int i = 0; i < 19; i++) {
        volatile float want = (float)i * 0.37f;
        want = want * (float)(1.0 / 3.0);
        assert_true(floats[i] == want);
    }
    reduce_scale(HVD_INT16, shorts, 3, 1.0);
    assert_int_equal(shorts[2], 3);
}

static void test_check(void **state)
{
    (void)state;
    for (int dtype = 0; dtype < HVD_DTYPE_COUNT; dtype++) {
        const hvd_dtype_t t = (hvd_dtype_t)dtype;
        const bool can_scale = t != HVD_UINT16 && t != HVD_INT16 && t != HVD_BOOL;
        for (size_t o = 0; o < sizeof(ops) / sizeof(ops[0]); o++) {
            assert_int_equal(reduce_check(t, ops[o], 1.0, 1.0), HVD_OK);
            assert_int_equal(reduce_check(t, ops[o], 0.5, 1.0),
                             can_scale ? HVD_OK : HVD_ERR_UNSUPPORTED);
            assert_int_equal(reduce_check(t, ops[o], 1.0, (double)NAN),
                             can_scale ? HVD_OK : HVD_ERR_UNSUPPORTED);
        }
        assert_int_equal(reduce_check(t, HVD_ADASUM, 1.0, 1.0), HVD_ERR_UNSUPPORTED);
    }
    assert_int_equal(reduce_check((hvd_dtype_t)99, HVD_SUM, 1.0, 1.0), HVD_ERR_UNSUPPORTED);
    assert_int_equal(reduce_check(HVD_FLOAT32, (hvd_reduce_t)99, 1.0, 1.0), HVD_ERR_UNSUPPORTED);
}

static void check_narrow(uint32_t bits)
{
    const float value = reduce_float_of(bits);
    assert_int_equal(reduce_float_to_half(value), ref_float_to_half(value));
    assert_int_equal(reduce_float_to_bfloat(value), ref_float_to_bfloat(value));
}

/* Every half, the floats next to it, and the floats around the middle to the next half. */
static void test_conversions(void **state)
{
    (void)state;
    for (uint32_t half = 0; half < 0x10000; half++) {
        const float value = reduce_half_to_float((uint16_t)half);
        const uint32_t bits = reduce_bits_of(value);
        assert_int_equal(bits, reduce_bits_of(ref_half_to_float((uint16_t)half)));
        assert_int_equal(reduce_bits_of(reduce_bfloat_to_float((uint16_t)half)), half << 16);
        for (uint32_t off = 0; off < 3; off++) {
            check_narrow(bits - 1 + off);
            check_narrow(bits + 0xfff + off);
            check_narrow((half << 16) + 0x7fff + off);
        }
    }
    for (int i = 0; i < 200000; i++)
        check_narrow((uint32_t)(random_bits() >> 16));
}

/* All halves through the vector conversions, scaled so that results meet every rounding case. */
static void test_conversions_in_kernels(void **state)
{
    static const double factors[] = {1.0, 0.5, 1e-3, 0.0001, 0.7, 3.0, -1.0 / 3.0};
    static uint16_t halves[65536], results[65536];
    (void)state;

    for (uint32_t i = 0; i < 65536; i++)
        halves[i] = (uint16_t)i;
    for (int isa = 0; isa < REDUCE_ISA_COUNT; isa++)
        for (size_t f = 0; f < sizeof(factors) / sizeof(factors[0]) * 2; f++) {
            const void *sources[2] = {halves, halves};
            void *targets[1] = {results};
            const struct reduce_job job = {
                .dtype = f % 2 ? HVD_BFLOAT16 : HVD_FLOAT16,
                .op = HVD_MAX,
                .prescale = 1.0,
                .postscale = factors[f / 2],
                .sources = sources,
                .source_count = 2,
                .targets = targets,
                .target_count = 1,
                .count = 65536,
            };
            if (!reduce_has_isa((enum reduce_isa)isa))
                continue;
            reduce_run_isa((enum reduce_isa)isa, &job);
            for (size_t i = 0; i < 65536; i++) {
                uint16_t want;
                ref_element(&job, i, (unsigned char *)&want);
                assert_int_equal(results[i], want);
            }
        }
}

static float ref_times(float value, double factor)
{
    volatile float product = value * (float)factor;
    return factor == 1.0 ? value : product;
}

static bool is_same_float(float a, float b)
{
    return (isnan(a) && isnan(b)) || reduce_bits_of(a) == reduce_bits_of(b);
}

static bool is_same_narrow(hvd_dtype_t narrow, uint16_t a, uint16_t b)
{
    bool is_half = narrow == HVD_FLOAT16;
    if (isnan(is_half ? ref_half_to_float(a) : ref_bfloat_to_float(a)))
        return isnan(is_half ? ref_half_to_float(b) : ref_bfloat_to_float(b));
    return a == b;
}

/* Whole arrays: all narrow values, and floats near every one of them, at odd places and lengths. */
static void check_arrays(hvd_dtype_t narrow, double factor, size_t count, size_t shift)
{
    enum { MOST = 65536 + 8 };
    static uint16_t narrows[MOST], narrowed[MOST];
    static float floats[MOST], widened[MOST];
    bool is_half = narrow == HVD_FLOAT16;

    for (size_t i = 0; i < MOST; i++) {
        narrows[i] = (uint16_t)(i - shift);
        floats[i] = reduce_float_of((reduce_bits_of(is_half ? ref_half_to_float(narrows[i])
                                                            : ref_bfloat_to_float(narrows[i])) +
                                     (is_half ? 0xfffu : 0x7fffu) + (uint32_t)(i % 3)));
    }
    memset(narrowed, GUARD, sizeof(narrowed));
    memset(widened, GUARD, sizeof(widened));
    const uint16_t narrow_guard = narrowed[0];
    const float wide_guard = widened[0];
    reduce_narrow(narrow, floats + shift, count, factor, narrowed + shift);
    reduce_widen(narrow, narrows + shift, count, factor, widened + shift);
    for (size_t i = 0; i < MOST; i++) {
        if (i < shift || i >= shift + count) {
            assert_int_equal(narrowed[i], narrow_guard);
            assert_int_equal(reduce_bits_of(widened[i]), reduce_bits_of(wide_guard));
            continue;
        }
        float scaled = ref_times(floats[i], factor);
        uint16_t want = is_half ? ref_float_to_half(scaled) : ref_float_to_bfloat(scaled);
        float wide = is_half ? ref_half_to_float(narrows[i]) : ref_bfloat_to_float(narrows[i]);
        assert_true(is_same_narrow(narrow, narrowed[i], want));
        assert_true(is_same_float(widened[i], ref_times(wide, factor)));
    }
}

static void test_arrays(void **state)
{
    static const double factors[] = {1.0, 1.0 / 3.0, 1e-3, 4096.0, -0.7};
    static const enum reduce_isa best_last[] = {REDUCE_SCALAR, REDUCE_NEON, REDUCE_AVX2,
                                                REDUCE_AVX512};
    (void)state;
    for (size_t n = 0; n < sizeof(best_last) / sizeof(best_last[0]); n++) {
        if (!reduce_has_isa(best_last[n]))
            continue;
        reduce_force_isa(best_last[n]);
        for (size_t f = 0; f < sizeof(factors) / sizeof(factors[0]); f++) {
            check_arrays(HVD_FLOAT16, factors[f], 65536, f);
            check_arrays(HVD_BFLOAT16, factors[f], 65536, f);
        }
        for (size_t count = 0; count < 35; count++) {
            check_arrays(HVD_FLOAT16, 1.0, count, count % 7);
            check_arrays(HVD_BFLOAT16, 0.5, count, count % 7);
        }
    }
}

static void test_is_finite(void **state)
{
    (void)state;
    uint16_t halves[37];
    float floats[37];
    for (size_t i = 0; i < 37; i++) {
        memset(halves, 0, sizeof(halves));
        halves[i] = 0xfbff; /* -65504 */
        assert_true(reduce_is_finite(HVD_FLOAT16, halves, 37));
        halves[i] = i % 2 ? 0x7c00 : 0xfe00;
        assert_false(reduce_is_finite(HVD_FLOAT16, halves, 37));
        assert_true(reduce_is_finite(HVD_BFLOAT16, halves, 37));
        halves[i] = i % 2 ? 0xff80 : 0x7fc0;
        assert_false(reduce_is_finite(HVD_BFLOAT16, halves, 37));
        memset(floats, 0, sizeof(floats));
        floats[i] = -FLT_MAX;
        assert_true(reduce_is_finite(HVD_FLOAT32, floats, 37));
        floats[i] = i % 2 ? -INFINITY : NAN;
        assert_false(reduce_is_finite(HVD_FLOAT32, floats, 37));
    }
}

/* ---- Adasum ---- */

static double get_double(hvd_dtype_t dtype, const unsigned char *p)
{
    double value;
    if (dtype != HVD_FLOAT64)
        return (double)get_float(dtype, p);
    memcpy(&value, p, sizeof(value));
    return value;
}

static void ref_dots(hvd_dtype_t dtype, const unsigned char *a, const unsigned char *b,
                     size_t count, double ret_dots[3])
{
    const size_t bytes = dtype_bytes(dtype);
    for (int k = 0; k < 3; k++) {
        double lane[8] = {0};
        for (size_t i = 0; i < count; i++) {
            const double x = get_double(dtype, (k == 2 ? b : a) + i * bytes);
            const double y = get_double(dtype, (k == 1 ? a : b) + i * bytes);
            volatile double product = x * y;
            lane[i % 8] += product;
        }
        ret_dots[k] = ((lane[0] + lane[4]) + (lane[2] + lane[6])) +
                      ((lane[1] + lane[5]) + (lane[3] + lane[7]));
    }
}

static void ref_combine(hvd_dtype_t dtype, unsigned char *a, const unsigned char *b, size_t count,
                        double ca, double cb)
{
    const size_t bytes = dtype_bytes(dtype);
    for (size_t i = 0; i < count; i++) {
        volatile double x = ca * get_double(dtype, a + i * bytes);
        volatile double y = cb * get_double(dtype, b + i * bytes);
        const double sum = x + y;
        if (dtype == HVD_FLOAT64)
            memcpy(a + i * bytes, &sum, sizeof(sum));
        else
            put_float(dtype, (float)sum, a + i * bytes);
    }
}

static void fill_finite(hvd_dtype_t dtype, unsigned char *p, size_t count)
{
    const size_t bytes = dtype_bytes(dtype);
    for (size_t i = 0; i < count; i++) {
        const double value = ((double)(random_bits() >> 32) / 4294967296.0 - 0.5) * 8.0;
        if (dtype == HVD_FLOAT64)
            memcpy(p + i * bytes, &value, sizeof(value));
        else
            put_float(dtype, (float)value, p + i * bytes);
    }
}

static void check_adasum(hvd_dtype_t dtype, size_t count, size_t shift)
{
    unsigned char *a = source_memory[0] + shift, *b = source_memory[1] + 3 * shift;
    double want[3], have[3];

    fill_finite(dtype, a, count);
    fill_finite(dtype, b, count);
    ref_dots(dtype, a, b, count, want);
    reduce_adasum_dots(dtype, a, b, count, have);
    assert_memory_equal(have, want, sizeof(want));

    memcpy(expected, a, count * dtype_bytes(dtype));
    ref_combine(dtype, expected, b, count, 0.7, -1.0 / 3.0);
    memset(a + count * dtype_bytes(dtype), GUARD, 64);
    reduce_adasum_combine(dtype, a, b, count, 0.7, -1.0 / 3.0);
    if (count > 0)
        assert_memory_equal(a, expected, count * dtype_bytes(dtype));
    for (size_t i = 0; i < 64; i++)
        assert_int_equal(a[count * dtype_bytes(dtype) + i], GUARD);
}

static void test_adasum(void **state)
{
    static const hvd_dtype_t dtypes[] = {HVD_FLOAT16, HVD_BFLOAT16, HVD_FLOAT32, HVD_FLOAT64};
    static const size_t counts[] = {0, 1, 7, 8, 9, 31, 64, 65, 511, 513, 1024, 1025, 4097};
    (void)state;

    for (int isa = 0; isa < REDUCE_ISA_COUNT; isa++) {
        if (!reduce_has_isa((enum reduce_isa)isa))
            continue;
        reduce_force_isa((enum reduce_isa)isa);
        for (size_t t = 0; t < 4; t++)
            for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++)
                check_adasum(dtypes[t], counts[c], c % 5);
    }
}

static void test_isa_choice(void **state)
{
    const float one = 1.0f;
    float result = 0.0f;
    const void *sources[2] = {&one, &one};
    void *targets[1] = {&result};
    const struct reduce_job job = {HVD_FLOAT32, HVD_SUM, 1.0, 1.0, sources, 2, targets, 1, 1};
    (void)state;

    assert_true(reduce_has_isa(REDUCE_SCALAR));
    assert_false(reduce_has_isa(REDUCE_ISA_COUNT));
    assert_string_equal(reduce_isa_name(REDUCE_AVX512), "avx512");
    assert_string_equal(reduce_isa_name(REDUCE_ISA_COUNT), "unknown");
    for (int isa = 0; isa < REDUCE_ISA_COUNT; isa++) { /* one that is not here falls back */
        result = 0.0f;
        reduce_force_isa((enum reduce_isa)isa);
        reduce_run(&job);
        assert_true(result == 2.0f);
        result = 0.0f;
        reduce_run_isa((enum reduce_isa)isa, &job);
        assert_true(result == 2.0f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        UNIT_CASE(test_scalar, check_isa, REDUCE_SCALAR),
        UNIT_CASE(test_avx2, check_isa, REDUCE_AVX2),
        UNIT_CASE(test_avx512, check_isa, REDUCE_AVX512),
        UNIT_CASE(test_neon, check_isa, REDUCE_NEON),
        cmocka_unit_test(test_sources_by_targets),
        cmocka_unit_test(test_many_sources_and_targets),
        cmocka_unit_test(test_integer_scaling),
        cmocka_unit_test(test_integer_limits),
        cmocka_unit_test(test_scale_in_place),
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_conversions),
        cmocka_unit_test(test_conversions_in_kernels),
        cmocka_unit_test(test_arrays),
        cmocka_unit_test(test_is_finite),
        cmocka_unit_test(test_adasum),
        cmocka_unit_test(test_isa_choice),
    };
    return cmocka_run_group_tests(tests, fill_half_values, NULL);
}
