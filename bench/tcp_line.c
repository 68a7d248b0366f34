/* SPDX-License-Identifier: Apache-2.0 */
/* tcp_line.c - how much of a line an allreduce between hosts fills, and how many bytes it sends.
 *
 * One rank per host, started by tcp_line.sh in network namespaces joined by a line of known rate.
 * The least that must leave a host is 2 (H-1)/H S bytes. Told are the payload that the transport
 * counted, and what the interface counted, which has headers, acknowledgements and control too.
 *
 * Use: tcp_line DEVICE RATE_MBIT BYTES ROUNDS [JSON]; ranks come from the environment.
 * Thread: one per rank (and the library's).  Start reading at main(). */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/meet.h"
#include "common/ranks.h"
#include "common/stats.h"

#define ROUNDS_MAX 64

struct line {
    const char *device, *json;
    double rate_bytes; /* per second */
    int64_t bytes;
    size_t rounds;
};

struct result {
    double seconds[ROUNDS_MAX];
    uint64_t payload, sent, received; /* of all rounds */
};

static uint64_t interface_count(const char *device, const char *what)
{
    char path[256];
    unsigned long long value = 0;
    snprintf(path, sizeof path, "/sys/class/net/%s/statistics/%s", device, what);
    FILE *file = fopen(path, "r");
    if (file == NULL || fscanf(file, "%llu", &value) != 1)
        fprintf(stderr, "bench: cannot read %s\n", path);
    if (file != NULL)
        fclose(file);
    return value;
}

static bool measure(const struct line *line, float *data, struct result *ret)
{
    int64_t count = line->bytes / (int64_t)sizeof(float);
    float sum = 0, one = 1;
    hvd_stats_t first = {.struct_size = sizeof first}, last = {.struct_size = sizeof last};
    for (int32_t r = 0; r < hvd_size(); r++)
        sum += (float)(r + 1);
    for (size_t i = 0; i < line->rounds; i++) {
        for (int64_t k = 0; k < count; k++)
            data[k] = (float)(hvd_rank() + 1) + (float)(k & 15);
        if (!ranks_allreduce("tcp.start", &one, 1))
            return false;
        uint64_t sent = interface_count(line->device, "tx_bytes");
        uint64_t received = interface_count(line->device, "rx_bytes");
        hvd_stats(&first);
        double began = now_s();
        if (!ranks_allreduce("tcp.line", data, count))
            return false;
        ret->seconds[i] = now_s() - began;
        hvd_stats(&last);
        if (!ranks_allreduce("tcp.end", &one, 1)) /* the peer's last bytes have come */
            return false;
        ret->payload += last.net_bytes - first.net_bytes;
        ret->sent += interface_count(line->device, "tx_bytes") - sent;
        ret->received += interface_count(line->device, "rx_bytes") - received;
        for (int64_t k = 0; k < count; k++)
            if (data[k] != sum + (float)hvd_size() * (float)(k & 15))
                return false;
    }
    return true;
}

static void tell(const struct line *line, const struct result *result)
{
    double hosts = hvd_size(), rounds = (double)line->rounds;
    double least = 2.0 * (hosts - 1.0) / hosts * (double)line->bytes;
    double median = stats_quantile(result->seconds, line->rounds, 0.5);
    double share = least / median / line->rate_bytes;
    printf("TCP between %d hosts, %.0f Mbit/s, %lld bytes, load average %.2f\n", hvd_size(),
           line->rate_bytes * 8e-6, (long long)line->bytes, stats_load());
    printf("  time %.1f ms (median of %zu), %.2f MB/s each way = %.1f %% of the line\n",
           median * 1e3, line->rounds, least / median / 1e6, share * 100);
    printf("  bytes per allreduce: least 2(H-1)/H S = %.0f; transport %.0f; "
           "interface out %.0f (%.3fx), in %.0f (%.3fx)\n",
           least, (double)result->payload / rounds, (double)result->sent / rounds,
           (double)result->sent / rounds / least, (double)result->received / rounds,
           (double)result->received / rounds / least);
    if (line->json == NULL)
        return;
    FILE *out = fopen(line->json, "w");
    if (out == NULL)
        return;
    fprintf(out,
            "{\"bench\": \"tcp_line\", \"hosts\": %d, \"rate_mbit\": %.0f, \"bytes\": %lld, "
            "\"ms\": %.3f, \"share\": %.4f, \"least\": %.0f, \"payload\": %.1f, \"sent\": %.1f, "
            "\"received\": %.1f, \"load\": %.2f}\n",
            hvd_size(), line->rate_bytes * 8e-6, (long long)line->bytes, median * 1e3, share, least,
            (double)result->payload / rounds, (double)result->sent / rounds,
            (double)result->received / rounds, stats_load());
    fclose(out);
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        fprintf(stderr, "use: %s DEVICE RATE_MBIT BYTES ROUNDS [JSON]\n", argv[0]);
        return 2;
    }
    struct line line = {.device = argv[1],
                        .rate_bytes = atof(argv[2]) * 125000.0,
                        .bytes = atoll(argv[3]) / 4 * 4,
                        .rounds = (size_t)atoi(argv[4]),
                        .json = argc > 5 ? argv[5] : NULL};
    static struct result result;
    if (line.rounds < 1 || line.rounds > ROUNDS_MAX || line.bytes < 4)
        return 2;
    if (hvd_init(NULL) != HVD_OK) {
        fprintf(stderr, "bench: %s\n", hvd_last_error());
        return 1;
    }
    int code = 1;
    float *data = malloc((size_t)line.bytes), one = 1;
    if (data == NULL)
        goto shutdown;
    for (int i = 0; i < 8; i++) /* names known, connections open */
        if (!ranks_allreduce("tcp.start", &one, 1) ||
            !ranks_allreduce("tcp.line", data, line.bytes / 4 < 1024 ? 1 : 1024))
            goto shutdown;
    if (!measure(&line, data, &result)) {
        fprintf(stderr, "bench: rank %d: failed or wrong result\n", hvd_rank());
        goto shutdown;
    }
    if (hvd_rank() == 0)
        tell(&line, &result);
    code = 0;
shutdown:
    hvd_shutdown();
    free(data);
    return code;
}
