/* SPDX-License-Identifier: Apache-2.0 */
/* allreduce.c - our allreduce against an MPI library's, in one set of processes, side by side.
 *
 * Started by that library's mpirun. Each rank loads the library (mpi/shim.c) and also joins a world
 * of ours. A round measures every way once, in an order drawn anew; a ratio is taken within a round
 * and the median of ratios is reported with its 95 % bootstrap interval. Before every call the data
 * is new and differs by rank; after it every element is checked. Time is the maximum over ranks of
 * a batch of calls back to back, each on data of its own (one call from 512 KiB up).
 *
 *     mpi       MPI_Allreduce in place, private memory
 *     arena     hvd_submit() + hvd_wait() under a lasting name, memory of hvd_alloc()
 *     private   the same, on the very memory that MPI gets
 *     raw_*     the backend driven by hand: no API, no negotiation
 *     raw_mpi   the MPI backend driven by hand: what it costs beside a plain MPI_Allreduce
 *     limit     the same bytes moved without any agreement (common/movement.h)
 *
 * Use: mpirun -np P allreduce --mpi SHIM.so [--json FILE] [--budget-ms N] [--sizes B,B,...]
 *      [--cold], where cold reads 64 MiB of other memory between filling and measuring.
 * Thread: one per rank.  Start reading at measure_size(). */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/meet.h"
#include "common/movement.h"
#include "common/ranks.h"
#include "common/raw.h"
#include "common/raw_mpi.h"
#include "common/stats.h"
#include "mpi/table.h"

#define BYTES_MAX   (64u << 20)
#define RING_BYTES  (512u << 10) /* of one batch: stays in the second cache */
#define BATCH_MAX   200
#define BATCH_S     0.02 /* a slow library's batch ends about here */
#define ROUNDS_MIN  9
#define ROUNDS_MAX  201
#define WARM_ROUNDS 12
#define SIZES_MAX   32
#define COLD_BYTES  (64u << 20)
#define LIMIT_BYTES (64u << 10) /* a share of the limit means nothing below */

enum way { MPI, ARENA, PRIVATE, RAW_ARENA, RAW_PRIVATE, RAW_MPI, LIMIT, WAYS };
static const char *const way_names[WAYS] = {"mpi",         "arena",   "private", "raw_arena",
                                            "raw_private", "raw_mpi", "limit"};

struct options {
    const char *shim, *json;
    double budget_s;
    bool is_cold;
    size_t sizes[SIZES_MAX];
    size_t size_count;
};

struct bench {
    struct options options;
    const struct mpi_table *mpi;
    struct meet meet;
    struct raw raw;
    struct raw_mpi raw_mpi;
    float *memory[WAYS]; /* where each way's data lies */
    float *peers[MOVEMENT_RANKS_MAX];
    uint8_t *cold;
    uint32_t seed;
    uint64_t calls;
    char name[64];
};

struct row {
    size_t bytes, rounds;
    int batch[WAYS];
    double seconds[WAYS][ROUNDS_MAX];
    struct stats_interval ratio[WAYS];
    double share, share_raw; /* of the limit */
};

/* ---- data ---- */

static float own_value(int rank, uint64_t call)
{
    return (float)((rank + 1) * (int)(1 + call % 11));
}

static void fill(const struct bench *b, float *data, size_t count)
{
    float own = own_value(b->meet.rank, b->calls);
    for (size_t i = 0; i < count; i++)
        data[i] = own + (float)(i & 255);
}

static bool is_right(const struct bench *b, const float *data, size_t count)
{
    float sum = 0;
    size_t wrong = 0;
    for (int rank = 0; rank < b->meet.size; rank++)
        sum += own_value(rank, b->calls);
    float ranks = (float)b->meet.size;
    for (size_t i = 0; i < count; i++)
        wrong += data[i] != sum + ranks * (float)(i & 255);
    return wrong == 0;
}

static size_t stride_of(size_t bytes)
{
    return (bytes < 64 ? 64 : bytes) / sizeof(float);
}

static uint64_t touch_cold(struct bench *b)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < COLD_BYTES; i += 64)
        sum += b->cold[i]++;
    return sum;
}

/* ---- one measurement ---- */

static bool call(struct bench *b, enum way way, float *data, size_t count)
{
    switch (way) {
    case MPI: return b->mpi->allreduce(data, (int)count) == 0;
    case ARENA:
    case PRIVATE: return ranks_allreduce(b->name, data, (int64_t)count);
    case RAW_ARENA:
    case RAW_PRIVATE: return raw_allreduce(&b->raw, data, count);
    case RAW_MPI: return raw_mpi_allreduce(&b->raw_mpi, data, count);
    case LIMIT: {
        float *at[MOVEMENT_RANKS_MAX];
        for (int i = 0; i < b->meet.size; i++)
            at[i] = b->peers[i] + (data - b->memory[LIMIT]);
        movement_run(at, b->meet.size, b->meet.rank, count);
        return true;
    }
    case WAYS: break;
    }
    return false;
}

static void give_up(const struct bench *b, enum way way, size_t bytes, const char *what)
{
    fprintf(stderr, "bench: rank %d: %s of %zu bytes: %s\n", b->meet.rank, way_names[way], bytes,
            what);
    exit(1);
}

/* Seconds per call, the maximum over ranks. */
static double measure(struct bench *b, enum way way, size_t bytes, int batch)
{
    size_t count = bytes / sizeof(float), stride = stride_of(bytes);
    float *data = b->memory[way];
    b->calls++;
    for (int i = 0; i < batch; i++)
        fill(b, data + (size_t)i * stride, count);
    if (b->options.is_cold)
        touch_cold(b);
    meet_barrier(&b->meet);
    double began = now_s();
    for (int i = 0; i < batch; i++)
        if (!call(b, way, data + (size_t)i * stride, count))
            give_up(b, way, bytes, "failed");
    double took = meet_max(&b->meet, now_s() - began);
    for (int i = 0; i < batch; i++)
        if (!is_right(b, data + (size_t)i * stride, count))
            give_up(b, way, bytes, "wrong result");
    return took / batch;
}

/* ---- one size ---- */

static int batch_of(size_t bytes, double seconds)
{
    size_t most = RING_BYTES / (bytes < 64 ? 64 : bytes);
    most = most > BATCH_MAX ? BATCH_MAX : most;
    if (seconds * (double)most > BATCH_S)
        most = (size_t)(BATCH_S / seconds);
    return most < 1 ? 1 : (int)most;
}

static void shuffle(uint32_t *seed, enum way *order)
{
    for (int i = WAYS - 1; i > 0; i--) {
        int k = (int)(stats_random(seed) % (uint32_t)(i + 1));
        enum way kept = order[i];
        order[i] = order[k];
        order[k] = kept;
    }
}

static void measure_size(struct bench *b, size_t bytes, struct row *ret)
{
    enum way order[WAYS];
    memset(ret, 0, sizeof *ret);
    ret->bytes = bytes;
    snprintf(b->name, sizeof b->name, "bench.%zu", bytes);
    for (int way = 0; way < WAYS; way++) {
        double fastest = 1e9;
        order[way] = (enum way)way;
        for (int i = 0; i < WARM_ROUNDS && (i < 4 || fastest < 0.01); i++) {
            double took = measure(b, (enum way)way, bytes, 1);
            fastest = took < fastest ? took : fastest;
        }
        ret->batch[way] = batch_of(bytes, fastest);
    }
    double began = now_s();
    while (ret->rounds < ROUNDS_MAX) {
        shuffle(&b->seed, order);
        for (int i = 0; i < WAYS; i++)
            ret->seconds[order[i]][ret->rounds] = measure(b, order[i], bytes, ret->batch[order[i]]);
        ret->rounds++;
        double spent = meet_max(&b->meet, now_s() - began);
        if (spent > b->options.budget_s && ret->rounds >= ROUNDS_MIN)
            break;
    }
    for (int way = 0; way < WAYS; way++)
        ret->ratio[way] = stats_ratio(ret->seconds[MPI], ret->seconds[way], ret->rounds);
    ret->share = stats_ratio(ret->seconds[LIMIT], ret->seconds[ARENA], ret->rounds).median;
    ret->share_raw = stats_ratio(ret->seconds[LIMIT], ret->seconds[RAW_ARENA], ret->rounds).median;
}

/* ---- telling ---- */

static const char *size_text(size_t bytes, char *ret_text, size_t room)
{
    if (bytes >= 1u << 20)
        snprintf(ret_text, room, "%zu MiB", bytes >> 20);
    else if (bytes >= 1u << 10)
        snprintf(ret_text, room, "%zu KiB", bytes >> 10);
    else
        snprintf(ret_text, room, "%zu B", bytes);
    return ret_text;
}

static void print_head(const struct bench *b, const char *version)
{
    printf("\n%d ranks on %d cores%s, %s, load average %.2f%s\n", b->meet.size, meet_core_count(),
           b->meet.is_crowded ? " (OVERSUBSCRIBED)" : "", version, stats_load(),
           b->options.is_cold ? ", cold caches" : "");
    printf("microseconds per call (maximum over ranks, median of rounds); x = times MPI's speed, "
           "95 %% interval\n");
    printf("%8s %6s %10s | %10s %6s %-13s | %10s %6s %-13s | %9s %6s | %9s %6s | %9s %6s | %5s "
           "%s\n",
           "size", "rounds", "MPI", "arena", "x", "", "private", "x", "", "raw arena", "x",
           "raw priv", "x", "raw MPI", "x", "limit", "");
}

static void print_ratio(const struct row *row, enum way way)
{
    char interval[32];
    snprintf(interval, sizeof interval, "[%.2f-%.2f]", row->ratio[way].low, row->ratio[way].high);
    printf(" | %10.1f %5.2fx %-13s", stats_quantile(row->seconds[way], row->rounds, 0.5) * 1e6,
           row->ratio[way].median, interval);
}

static void print_verdict(const struct row *row)
{
    for (int way = ARENA; way <= PRIVATE; way++) {
        if (row->ratio[way].high < 1.0)
            printf(" LOSES:%s", way_names[way]);
        else if (row->ratio[way].low < 1.0)
            printf(" even:%s", way_names[way]);
    }
    printf("\n");
    fflush(stdout);
}

static void print_row(const struct row *row)
{
    char size[32];
    printf("%8s %6zu %10.1f", size_text(row->bytes, size, sizeof size), row->rounds,
           stats_quantile(row->seconds[MPI], row->rounds, 0.5) * 1e6);
    print_ratio(row, ARENA);
    print_ratio(row, PRIVATE);
    for (int way = RAW_ARENA; way <= RAW_MPI; way++)
        printf(" | %9.1f %5.2fx", stats_quantile(row->seconds[way], row->rounds, 0.5) * 1e6,
               row->ratio[way].median);
    if (row->bytes >= LIMIT_BYTES)
        printf(" | %4.0f%%", row->share * 100);
    else
        printf(" | %5s", "");
    print_verdict(row);
}

static void json_row(FILE *out, const struct row *row, bool is_last)
{
    fprintf(out, "  {\"bytes\": %zu, \"rounds\": %zu, \"share\": %.4f, \"share_raw\": %.4f, ",
            row->bytes, row->rounds, row->share, row->share_raw);
    fprintf(out, "\"ways\": {");
    for (int way = 0; way < WAYS; way++) {
        const double *s = row->seconds[way];
        fprintf(out,
                "%s\"%s\": {\"us\": %.4f, \"q10_us\": %.4f, \"p99_us\": %.4f, \"worst_us\": %.4f, "
                "\"batch\": %d, "
                "\"ratio\": %.4f, \"low\": %.4f, \"high\": %.4f}",
                way > 0 ? ", " : "", way_names[way], stats_quantile(s, row->rounds, 0.5) * 1e6,
                stats_quantile(s, row->rounds, 0.1) * 1e6,
                stats_quantile(s, row->rounds, 0.99) * 1e6,
                stats_quantile(s, row->rounds, 1.0) * 1e6, row->batch[way], row->ratio[way].median,
                row->ratio[way].low, row->ratio[way].high);
    }
    fprintf(out, "}}%s\n", is_last ? "" : ",");
}

static bool json_write(const struct bench *b, const char *version, const struct row *rows,
                       double load, double steal_s, double wall_s)
{
    FILE *out = fopen(b->options.json, "w");
    if (out == NULL) {
        perror(b->options.json);
        return false;
    }
    fprintf(out,
            "{\"bench\": \"allreduce\", \"mpi\": \"%s\", \"ranks\": %d, \"cores\": %d, "
            "\"is_cold\": %s, \"load_before\": %.2f, \"load_after\": %.2f, \"steal_share\": %.4f,\n"
            " \"rows\": [\n",
            version, b->meet.size, meet_core_count(), b->options.is_cold ? "true" : "false", load,
            stats_load(), steal_s / (wall_s * meet_core_count()));
    for (size_t i = 0; i < b->options.size_count; i++)
        json_row(out, &rows[i], i + 1 == b->options.size_count);
    fprintf(out, " ]}\n");
    return fclose(out) == 0;
}

/* ---- life ---- */

struct invitation { /* from rank 0 to all, by MPI */
    struct ranks_job job;
    int pid, fd, is_good;
};

static bool join(struct bench *b)
{
    struct invitation invitation = {0};
    struct meet_page *page = NULL;
    int rank = b->mpi->rank(), size = b->mpi->size();
    if (size < 2 || size > MOVEMENT_RANKS_MAX) {
        fprintf(stderr, "bench: start it with mpirun -np 2 to %d\n", MOVEMENT_RANKS_MAX);
        return false;
    }
    if (rank == 0) {
        invitation.pid = (int)getpid();
        page = meet_page_create(&invitation.fd);
        invitation.is_good = page != NULL && ranks_serve(&invitation.job);
    }
    if (b->mpi->bcast(&invitation, sizeof invitation) != 0 || !invitation.is_good)
        return false;
    if (rank != 0)
        page = meet_page_open(invitation.pid, invitation.fd);
    if (page == NULL) {
        perror("bench: shared page");
        return false;
    }
    meet_init(&b->meet, page, rank, size);
    return ranks_init(&invitation.job, rank, size) && raw_open(&b->raw, &b->meet) &&
           raw_mpi_open(&b->raw_mpi, rank, size);
}

static bool reserve(struct bench *b)
{
    b->memory[MPI] = b->memory[PRIVATE] = b->memory[RAW_PRIVATE] = b->memory[RAW_MPI] =
        aligned_alloc(4096, BYTES_MAX);
    b->memory[ARENA] = hvd_alloc(BYTES_MAX);
    b->memory[RAW_ARENA] = raw_alloc(&b->raw, BYTES_MAX);
    b->memory[LIMIT] = raw_alloc(&b->raw, BYTES_MAX); /* its own: as cold as the others' */
    b->cold = calloc(1, COLD_BYTES);
    for (int way = 0; way < WAYS; way++) {
        if (b->memory[way] == NULL || b->cold == NULL) {
            fprintf(stderr, "bench: not enough memory\n");
            return false;
        }
        memset(b->memory[way], 0, BYTES_MAX);
    }
    for (int i = 0; i < b->meet.size; i++)
        b->peers[i] = raw_peer(&b->raw, i, b->memory[LIMIT]);
    meet_barrier(&b->meet);
    return true;
}

static int run(struct bench *b)
{
    static struct row rows[SIZES_MAX];
    char version[128];
    double load = stats_load(), steal_s = stats_steal_s(), began = now_s();
    bool is_teller = b->meet.rank == 0;
    b->mpi->version(version, sizeof version);
    if (is_teller)
        print_head(b, version);
    for (size_t i = 0; i < b->options.size_count; i++) {
        measure_size(b, b->options.sizes[i], &rows[i]);
        if (is_teller)
            print_row(&rows[i]);
    }
    if (is_teller && b->options.json != NULL &&
        !json_write(b, version, rows, load, stats_steal_s() - steal_s, now_s() - began))
        return 1;
    return 0;
}

static size_t sizes_parse(const char *text, size_t *ret_sizes)
{
    size_t count = 0;
    for (char *end; count < SIZES_MAX && *text != '\0'; text = *end == ',' ? end + 1 : end) {
        unsigned long long bytes = strtoull(text, &end, 10);
        if (end == text || bytes < 4 || bytes > BYTES_MAX || bytes % 4 != 0)
            return 0;
        ret_sizes[count++] = (size_t)bytes;
    }
    return count;
}

static bool options_parse(struct options *o, int argc, char **argv)
{
    *o = (struct options){.budget_s = 1.0};
    o->size_count = sizes_parse("8,64,512,4096,16384,65536,262144,1048576,4194304,8388608,16777216,"
                                "67108864",
                                o->sizes);
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--cold") == 0) {
            o->is_cold = true;
            continue;
        }
        if (value == NULL)
            return false;
        if (strcmp(argv[i], "--mpi") == 0)
            o->shim = value;
        else if (strcmp(argv[i], "--json") == 0)
            o->json = value;
        else if (strcmp(argv[i], "--budget-ms") == 0)
            o->budget_s = atof(value) * 1e-3;
        else if (strcmp(argv[i], "--sizes") == 0)
            o->size_count = sizes_parse(value, o->sizes);
        else
            return false;
        i++;
    }
    return o->shim != NULL && o->size_count > 0;
}

int main(int argc, char **argv)
{
    static struct bench b = {.seed = 12345};
    if (!options_parse(&b.options, argc, argv)) {
        fprintf(stderr,
                "use: mpirun -np P %s --mpi SHIM.so [--json FILE] [--budget-ms N] "
                "[--sizes B,B,...] [--cold]\n",
                argv[0]);
        return 2;
    }
    void *library = dlopen(b.options.shim, RTLD_NOW | RTLD_GLOBAL);
    b.mpi = library != NULL ? dlsym(library, MPI_TABLE_NAME) : NULL;
    if (b.mpi == NULL) {
        fprintf(stderr, "bench: %s\n", dlerror());
        return 1;
    }
    if (b.mpi->init() != 0 || !join(&b) || !reserve(&b))
        return 1;
    int code = run(&b);
    meet_barrier(&b.meet);
    hvd_shutdown();
    raw_close(&b.raw);
    raw_mpi_close(&b.raw_mpi);
    b.mpi->finalize();
    return code;
}
