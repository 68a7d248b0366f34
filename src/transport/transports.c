/* SPDX-License-Identifier: Apache-2.0 */
/* transports.c - see transports.h: the table and the choice. */
#include "transport/transports.h"

#include <string.h>

#include "transport/mpi/mpi.h"
#include "transport/shm/shm.h"
#include "transport/tcp/tcp.h"

const struct transport_row *const transport_table[] = {&shm_row, &mpi_row, &tcp_row, NULL};

_Static_assert(sizeof transport_table / sizeof *transport_table <= TRANSPORTS_MAX + 1,
               "a rank offers at most so many");

const struct transport_row *transports_choose(const struct transport_row *const *rows,
                                              const struct endpoint *a, const struct endpoint *b)
{
    const struct transport_row *best = NULL;
    int32_t best_score = -1;
    size_t n;
    const struct endpoint *low = a->rank < b->rank ? a : b, *high = low == a ? b : a;
    for (; *rows != NULL; rows++) {
        const struct transport_row *row = *rows;
        if (endpoint_find(low, row->name, &n) == NULL || endpoint_find(high, row->name, &n) == NULL)
            continue;
        int32_t score = row->score(low, high);
        if (score < 0 || score < best_score ||
            (score == best_score && strcmp(row->name, best->name) > 0))
            continue;
        best = row;
        best_score = score;
    }
    return best;
}

hvd_status_t transports_check(const struct transport_row *const *rows, const struct endpoint *e,
                              struct error *error)
{
    for (; *rows != NULL; rows++) {
        size_t n;
        const uint8_t *bytes = endpoint_find(e, (*rows)->name, &n);
        if (bytes != NULL && !(*rows)->is_offer(bytes, n))
            return error_set(error, HVD_ERR_CORRUPT,
                             "Rank %d on %.48s sent a malformed address for the transport %s "
                             "(%zu bytes). Do all ranks run the same version of Horovod?",
                             e->rank, e->host_name, (*rows)->name, n);
    }
    return HVD_OK;
}

int32_t transports_addresses(const struct transport_row *const *rows, const struct endpoint *self,
                             uint8_t (*ret)[16], int32_t max)
{
    int32_t count = 0;
    for (; *rows != NULL; rows++)
        if ((*rows)->addresses != NULL)
            count += (*rows)->addresses(self, ret + count, max - count);
    return count;
}

bool transports_always(const struct transport_place *place)
{
    (void)place;
    return true;
}
