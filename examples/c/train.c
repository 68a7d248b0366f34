/* SPDX-License-Identifier: Apache-2.0 */
/* train.c - a small network trained on several ranks in plain C.
 *
 * Points of the plane belong to one of two interleaved spirals; a network with one hidden layer
 * learns which. Every rank draws points of its own, computes gradients on them, and averages the
 * gradients with all others, so all ranks hold the same weights after every step: the end of the
 * program checks that. The gradients lie in memory of hvd_alloc(), which ranks of one host reduce
 * in place, without copies. All that is needed is <horovod/hvd.h> and libhorovod.so.
 *
 *     horovodrun -np 2 ./train
 *
 * Start reading at train(). */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <horovod/hvd.h>

#define INPUTS   2
#define HIDDEN   48
#define BATCH    64 /* points of one rank per step */
#define STEPS    3000
#define RATE     0.15f
#define MOMENTUM 0.9f
#define TURNS    1.25f
#define PI       3.14159265f

struct network { /* weights, or their gradients */
    float in[HIDDEN][INPUTS];
    float in_bias[HIDDEN];
    float out[HIDDEN];
    float out_bias[1];
};

struct point {
    float at[INPUTS];
    float is_second; /* of the two spirals: 0 or 1 */
};

static void check(hvd_status_t status, const char *what)
{
    if (status == HVD_OK)
        return;
    fprintf(stderr, "rank %d: %s: %s (%s)\n", hvd_rank(), what, hvd_last_error(),
            hvd_status_name(status));
    exit(1);
}

/* ---- communication ---- */

static hvd_op_t describe(hvd_kind_t kind, const char *name, float *data, const int64_t *count)
{
    hvd_op_t op;
    hvd_op_init(&op, kind);
    op.name = name;
    op.input = (hvd_tensor_t){
        .data = data, .shape = count, .ndim = 1, .dtype = HVD_FLOAT32, .device = HVD_DEVICE_CPU};
    op.output = op.input; /* in place */
    return op;
}

static void finish(hvd_handle_t handle, const char *what)
{
    hvd_status_t status = hvd_wait(handle, -1);
    if (status != HVD_OK) {
        fprintf(stderr, "rank %d: %s: %s\n", hvd_rank(), what, hvd_error(handle));
        exit(1);
    }
    hvd_release(handle);
}

/* All ranks begin with rank 0's weights. */
static void broadcast(struct network *weights)
{
    const int64_t count = sizeof *weights / sizeof(float);
    hvd_op_t op = describe(HVD_BROADCAST, "weights", (float *)weights, &count);
    hvd_handle_t handle;
    op.root = 0;
    check(hvd_submit(&op, &handle), "broadcast");
    finish(handle, "broadcast");
}

/* One op per layer, submitted in the order in which a backward pass makes them; the library fuses
 * what is ready at the same time. */
static void average(struct network *gradients)
{
    static const int64_t counts[] = {1, HIDDEN, HIDDEN, HIDDEN * INPUTS};
    hvd_op_t ops[] = {
        describe(HVD_ALLREDUCE, "grad.out_bias", gradients->out_bias, &counts[0]),
        describe(HVD_ALLREDUCE, "grad.out", gradients->out, &counts[1]),
        describe(HVD_ALLREDUCE, "grad.in_bias", gradients->in_bias, &counts[2]),
        describe(HVD_ALLREDUCE, "grad.in", &gradients->in[0][0], &counts[3]),
    };
    hvd_handle_t handles[4];
    for (int i = 0; i < 4; i++) {
        ops[i].reduce = HVD_AVERAGE;
        check(hvd_submit(&ops[i], &handles[i]), ops[i].name);
    }
    for (int i = 0; i < 4; i++)
        finish(handles[i], ops[i].name);
}

static float reduce_one(const char *name, float value, hvd_reduce_t reduce)
{
    const int64_t one = 1;
    hvd_op_t op = describe(HVD_ALLREDUCE, name, &value, &one);
    hvd_handle_t handle;
    op.reduce = reduce;
    check(hvd_submit(&op, &handle), name);
    finish(handle, name);
    return value;
}

/* ---- the model ---- */

static float uniform(uint64_t *seed) /* 0 to 1 */
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (float)(*seed >> 40) / 16777216.0f;
}

static struct point draw(uint64_t *seed)
{
    struct point p = {.is_second = uniform(seed) < 0.5f ? 0.0f : 1.0f};
    float radius = 0.1f + 0.9f * uniform(seed);
    float angle = radius * TURNS * 2.0f * PI + p.is_second * PI;
    p.at[0] = radius * cosf(angle);
    p.at[1] = radius * sinf(angle);
    return p;
}

static void weights_draw(struct network *weights, uint64_t *seed)
{
    memset(weights, 0, sizeof *weights);
    for (int h = 0; h < HIDDEN; h++) {
        for (int i = 0; i < INPUTS; i++)
            weights->in[h][i] = 6.0f * (uniform(seed) - 0.5f);
        weights->in_bias[h] = 4.0f * (uniform(seed) - 0.5f);
        weights->out[h] = uniform(seed) - 0.5f;
    }
}

/* The probability of the second spiral; `hidden` gets the middle layer. */
static float predict(const struct network *w, const struct point *p, float *hidden)
{
    float sum = w->out_bias[0];
    for (int h = 0; h < HIDDEN; h++) {
        hidden[h] = tanhf(w->in[h][0] * p->at[0] + w->in[h][1] * p->at[1] + w->in_bias[h]);
        sum += w->out[h] * hidden[h];
    }
    return 1.0f / (1.0f + expf(-sum));
}

/* Adds one point's share to the gradients; returns its loss. */
static float learn(const struct network *w, const struct point *p, struct network *gradients)
{
    float hidden[HIDDEN];
    float guess = predict(w, p, hidden), wrong = (guess - p->is_second) / BATCH;
    gradients->out_bias[0] += wrong;
    for (int h = 0; h < HIDDEN; h++) {
        float back = wrong * w->out[h] * (1.0f - hidden[h] * hidden[h]);
        gradients->out[h] += wrong * hidden[h];
        gradients->in_bias[h] += back;
        for (int i = 0; i < INPUTS; i++)
            gradients->in[h][i] += back * p->at[i];
    }
    float right = p->is_second > 0.5f ? guess : 1.0f - guess;
    return -logf(right > 1e-7f ? right : 1e-7f) / BATCH;
}

static void apply(struct network *weights, struct network *speed, const struct network *gradients)
{
    float *w = (float *)weights, *v = (float *)speed;
    const float *g = (const float *)gradients;
    for (size_t i = 0; i < sizeof *weights / sizeof(float); i++) {
        v[i] = MOMENTUM * v[i] + g[i];
        w[i] -= RATE * v[i];
    }
}

static float accuracy(const struct network *weights, uint64_t seed)
{
    float hidden[HIDDEN];
    int right = 0, count = 1000;
    for (int i = 0; i < count; i++) {
        struct point p = draw(&seed);
        right += (predict(weights, &p, hidden) > 0.5f) == (p.is_second > 0.5f);
    }
    return (float)right / (float)count;
}

static void train(struct network *weights, struct network *gradients)
{
    static struct network speed;
    uint64_t seed = 1000 + (uint64_t)hvd_rank(); /* every rank sees other points */
    broadcast(weights);
    for (int step = 0; step < STEPS; step++) {
        float loss = 0;
        memset(gradients, 0, sizeof *gradients);
        for (int i = 0; i < BATCH; i++) {
            struct point p = draw(&seed);
            loss += learn(weights, &p, gradients);
        }
        average(gradients);
        apply(weights, &speed, gradients);
        if (step % 500 != 0)
            continue;
        loss = reduce_one("loss", loss, HVD_AVERAGE);
        if (hvd_rank() == 0)
            printf("step %4d  loss %.4f\n", step, (double)loss);
    }
}

/* The same sums in the same order everywhere: not one bit may differ. */
static int is_equal_everywhere(const struct network *weights)
{
    uint32_t bits, sum = 0;
    const float *w = (const float *)weights;
    for (size_t i = 0; i < sizeof *weights / sizeof(float); i++) {
        memcpy(&bits, &w[i], sizeof bits);
        sum = sum * 31u + bits;
    }
    float mine = (float)(sum % 1000003u);
    return reduce_one("bits.min", mine, HVD_MIN) == reduce_one("bits.max", mine, HVD_MAX);
}

int main(void)
{
    static struct network weights, private;
    uint64_t seed;
    check(hvd_init(NULL), "init");
    seed = (uint64_t)hvd_rank() + 1;
    struct network *shared = hvd_alloc(sizeof *shared);
    struct network *gradients = shared != NULL ? shared : &private; /* any memory will do */
    weights_draw(&weights, &seed);
    train(&weights, gradients);
    float right =
        reduce_one("accuracy", accuracy(&weights, 7u + (uint64_t)hvd_rank()), HVD_AVERAGE);
    int is_equal = is_equal_everywhere(&weights);
    if (hvd_rank() == 0)
        printf("%d ranks: accuracy %.1f %%, weights %s\n", hvd_size(), 100.0 * (double)right,
               is_equal ? "equal on all ranks" : "DIFFER between ranks");
    hvd_free(shared);
    hvd_shutdown();
    return is_equal && right > 0.9f ? 0 : 1;
}
