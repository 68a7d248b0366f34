/* SPDX-License-Identifier: Apache-2.0 */
/* sim_net.c - virtual time, the event heap, random delays and faults of the simulated network.
 *
 * One binary heap orders everything by (time, turn). advance() moves the clock to the top and
 * passes due items to the ranks; only ranks with work are in the due list, so a step costs O(log n)
 * per event and nothing per rank.
 *
 * Thread: one.  Owner: the simulator.  Invariant: an item is in exactly one place: heap, a due
 * list, a held list or the pool.  Start reading at sim_net_advance(). */
#include "transport/sim/sim_internal.h"

#include <errno.h>
#include <string.h>

/* --- random numbers: splitmix64 expands the seed, xoshiro256** (public domain) generates --- */

static uint64_t rotate_left(uint64_t x, unsigned by)
{
    return (x << by) | (x >> (64 - by));
}

uint64_t sim_net_random(struct sim_net *net)
{
    uint64_t *s = net->random;
    const uint64_t result = rotate_left(s[1] * 5, 7) * 9;
    const uint64_t shifted = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= shifted;
    s[3] = rotate_left(s[3], 45);
    return result;
}

int64_t sim_delay_ns(struct sim_net *net, int32_t from, int32_t to)
{
    const struct sim_net_options *o = &net->options;
    const uint64_t span = (uint64_t)(o->delay_max_ns - o->delay_min_ns) + 1;
    const int64_t delay = o->delay_min_ns + (int64_t)(sim_net_random(net) % span);

    return delay + net->nodes[from].extra_ns + net->nodes[to].extra_ns;
}

/* --- items and the heap --- */

struct sim_item *sim_item_new(struct sim_net *net, enum sim_kind kind, int32_t from, int32_t to,
                              size_t bytes)
{
    struct sim_item *item = NULL;

    if (bytes <= SIM_ITEM_SMALL && net->spare != NULL) {
        item = net->spare;
        net->spare = item->next;
    } else {
        const size_t capacity = bytes <= SIM_ITEM_SMALL ? SIM_ITEM_SMALL : bytes;

        item = os_alloc(net->os, sizeof *item + capacity);
        if (item == NULL)
            return NULL;
        item->capacity = capacity;
    }
    item->next = NULL;
    item->kind = kind;
    item->from = from;
    item->to = to;
    item->status = HVD_OK;
    item->flight = NULL;
    item->bytes = bytes;
    return item;
}

void sim_item_free(struct sim_net *net, struct sim_item *item)
{
    if (item->capacity != SIM_ITEM_SMALL) {
        os_free(net->os, item);
        return;
    }
    item->next = net->spare;
    net->spare = item;
}

static bool is_before(const struct sim_slot *a, const struct sim_slot *b)
{
    return a->time_ns != b->time_ns ? a->time_ns < b->time_ns : a->turn < b->turn;
}

static int heap_push(struct sim_net *net, struct sim_item *item)
{
    const struct sim_slot slot = {item->time_ns, item->turn, item};
    size_t at = net->heap_count;

    if (at == net->heap_capacity) {
        const size_t capacity = at == 0 ? 256 : at * 2;
        void *grown = net->os->resize(net->os->ctx, net->heap, capacity * sizeof *net->heap);

        if (grown == NULL)
            return -ENOMEM;
        net->heap = grown;
        net->heap_capacity = capacity;
    }
    net->heap_count++;
    while (at > 0 && is_before(&slot, &net->heap[(at - 1) / 2])) {
        net->heap[at] = net->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    net->heap[at] = slot;
    return 0;
}

static struct sim_item *heap_pop(struct sim_net *net)
{
    struct sim_item *top = net->heap[0].item;
    const struct sim_slot last = net->heap[--net->heap_count];
    size_t at = 0;

    for (;;) {
        size_t child = 2 * at + 1;

        if (child >= net->heap_count)
            break;
        if (child + 1 < net->heap_count && is_before(&net->heap[child + 1], &net->heap[child]))
            child++;
        if (!is_before(&net->heap[child], &last))
            break;
        net->heap[at] = net->heap[child];
        at = child;
    }
    net->heap[at] = last;
    return top;
}

int sim_schedule(struct sim_net *net, struct sim_item *item, int64_t time_ns)
{
    item->time_ns = time_ns;
    item->turn = net->turn++;
    if (heap_push(net, item) == 0)
        return 0;
    sim_item_free(net, item);
    return -ENOMEM;
}

/* --- what is due --- */

static void queue_push(struct sim_queue *queue, struct sim_item *item)
{
    item->next = NULL;
    if (queue->tail == NULL)
        queue->head = item;
    else
        queue->tail->next = item;
    queue->tail = item;
}

static struct sim_item *queue_pop(struct sim_queue *queue)
{
    struct sim_item *item = queue->head;

    if (item == NULL)
        return NULL;
    queue->head = item->next;
    if (queue->head == NULL)
        queue->tail = NULL;
    return item;
}

struct sim_item *sim_due_pop(struct sim_node *node)
{
    return queue_pop(&node->due);
}

static void due_list(struct sim_net *net, struct sim_node *node)
{
    if (node->is_listed || !node->is_open || node->due.head == NULL)
        return;
    node->is_listed = true;
    node->due_next = NULL;
    node->due_prev = net->due_tail;
    if (net->due_tail == NULL)
        net->due_head = node;
    else
        net->due_tail->due_next = node;
    net->due_tail = node;
}

void sim_due_unlist(struct sim_net *net, struct sim_node *node)
{
    if (!node->is_listed)
        return;
    if (node->due_prev == NULL)
        net->due_head = node->due_next;
    else
        node->due_prev->due_next = node->due_next;
    if (node->due_next == NULL)
        net->due_tail = node->due_prev;
    else
        node->due_next->due_prev = node->due_prev;
    node->is_listed = false;
}

/* The receiver's buffer is filled when the data arrives, as a network card would do it; only then
 * may the sender's request complete. */
static void arrive(struct sim_net *net, struct sim_item *item)
{
    struct sim_transfer *flight = item->flight;
    struct sim_item *answer = NULL;

    if (flight->recv != NULL && flight->bytes > 0 && (flight->copy != NULL || flight->send != NULL))
        memcpy(flight->recv->recv, flight->copy != NULL ? flight->copy : flight->send->send,
               flight->bytes);
    flight->has_data = true;
    if (flight->send == NULL)
        return;
    answer = sim_item_new(net, SIM_SEND_DONE, item->to, item->from, 0);
    if (answer == NULL)
        return;
    answer->flight = flight;
    if (sim_schedule(net, answer, net->now_ns + sim_delay_ns(net, item->to, item->from)) == 0)
        flight->items++;
}

static void item_drop(struct sim_net *net, struct sim_item *item)
{
    struct sim_link *link = NULL;

    if (item->flight != NULL) {
        const bool is_arrival = item->kind == SIM_ARRIVAL;

        link = sim_link_get(net, is_arrival ? item->from : item->to,
                            is_arrival ? item->to : item->from);
        item->flight->items--;
        sim_flight_release(net, link, item->flight);
    }
    if (item->kind == SIM_MESSAGE)
        sim_link_get(net, item->from, item->to)->messages--;
    sim_item_free(net, item);
}

static void dispatch(struct sim_net *net, struct sim_item *item)
{
    struct sim_node *to = &net->nodes[item->to];
    struct sim_node *from = &net->nodes[item->from];

    if (to->is_hung || from->is_hung) {
        queue_push(to->is_hung ? &to->held : &from->held, item);
        return;
    }
    if (to->is_closed || to->is_crashed) {
        item_drop(net, item);
        return;
    }
    if (item->kind == SIM_ARRIVAL)
        arrive(net, item);
    queue_push(&to->due, item);
    due_list(net, to);
}

void sim_settle(struct sim_net *net)
{
    while (net->heap_count > 0 && net->heap[0].time_ns <= net->now_ns)
        dispatch(net, heap_pop(net));
}

bool sim_net_advance(struct sim_net *net, int64_t limit_ns)
{
    while (net->heap_count > 0 && net->heap[0].time_ns <= limit_ns) {
        const int64_t next_ns = net->heap[0].time_ns;

        if (next_ns > net->now_ns)
            net->now_ns = next_ns;
        sim_settle(net);
        if (net->due_head != NULL)
            return true;
    }
    if (limit_ns > net->now_ns)
        net->now_ns = limit_ns;
    return false;
}

bool sim_net_is_due(struct sim_net *net, int32_t rank)
{
    if (rank < 0 || rank >= net->options.ranks)
        return false;
    sim_settle(net);
    return net->nodes[rank].is_listed;
}

int32_t sim_net_due_rank(struct sim_net *net)
{
    sim_settle(net);
    return net->due_head == NULL ? -1 : net->due_head->rank;
}

/* --- links and faults --- */

struct sim_link *sim_link_get(struct sim_net *net, int32_t from, int32_t to)
{
    struct sim_node *node = &net->nodes[to];
    const size_t ranks = (size_t)net->options.ranks;

    if (node->links == NULL)
        node->links = os_alloc(net->os, ranks * sizeof *node->links);
    if (node->links == NULL)
        return NULL;
    if (node->links[from] == NULL)
        node->links[from] = os_alloc(net->os, sizeof *node->links[from]);
    return node->links[from];
}

void sim_link_cut(struct sim_net *net, int32_t from, int32_t to, int64_t time_ns,
                  hvd_status_t status)
{
    struct sim_link *link = sim_link_get(net, from, to);
    struct sim_item *item = NULL;

    if (link == NULL || link->is_down)
        return;
    item = sim_item_new(net, SIM_DOWN, from, to, 0);
    if (item == NULL)
        return;
    item->status = status;
    if (sim_schedule(net, item, time_ns) == 0)
        link->is_down = true;
}

static int64_t link_quiet_ns(const struct sim_link *link)
{
    if (link == NULL)
        return 0;
    return link->message_last_ns > link->bulk_last_ns ? link->message_last_ns : link->bulk_last_ns;
}

/* A rank that closes in an orderly manner has delivered what it sent before the close is seen;
 * after a crash, data slower than the notification is lost. */
void sim_node_leave(struct sim_net *net, struct sim_node *node, bool is_crash)
{
    struct sim_item *item = NULL;

    node->is_crashed = is_crash;
    node->is_closed = true;
    for (int32_t peer = 0; peer < net->options.ranks; peer++) {
        struct sim_link *in = node->links != NULL ? node->links[peer] : NULL;
        struct sim_link *out =
            net->nodes[peer].links != NULL ? net->nodes[peer].links[node->rank] : NULL;
        int64_t time_ns = 0;

        if (peer == node->rank)
            continue;
        time_ns = net->now_ns + sim_delay_ns(net, node->rank, peer);
        if (!is_crash && link_quiet_ns(out) > time_ns)
            time_ns = link_quiet_ns(out);
        if (in != NULL)
            sim_link_forget(net, in, false);
        if (out != NULL)
            sim_link_forget(net, out, true);
        sim_link_cut(net, node->rank, peer, time_ns, HVD_ERR_PEER_DEAD);
    }
    sim_due_unlist(net, node);
    while ((item = queue_pop(&node->due)) != NULL)
        item_drop(net, item);
}

void sim_net_crash(struct sim_net *net, int32_t rank)
{
    struct sim_node *node = NULL;

    if (rank < 0 || rank >= net->options.ranks || net->nodes[rank].is_closed)
        return;
    node = &net->nodes[rank];
    if (node->is_hung)
        sim_net_hang(net, rank, false);
    sim_node_leave(net, node, true);
}

void sim_net_hang(struct sim_net *net, int32_t rank, bool is_hung)
{
    struct sim_node *node = NULL;
    struct sim_item *item = NULL;

    if (rank < 0 || rank >= net->options.ranks || net->nodes[rank].is_hung == is_hung)
        return;
    node = &net->nodes[rank];
    node->is_hung = is_hung;
    if (is_hung) {
        node->hung_ns = net->now_ns;
        sim_due_unlist(net, node);
        return;
    }
    due_list(net, node);
    while ((item = queue_pop(&node->held)) != NULL) {
        /* the old turn keeps the order against what was sent meanwhile */
        if (item->time_ns < net->now_ns)
            item->time_ns = net->now_ns;
        if (heap_push(net, item) != 0)
            item_drop(net, item);
    }
}

void sim_net_slow(struct sim_net *net, int32_t rank, int64_t extra_ns)
{
    if (rank >= 0 && rank < net->options.ranks && extra_ns >= 0)
        net->nodes[rank].extra_ns = extra_ns;
}

/* --- create and destroy --- */

struct sim_net *sim_net_create(const struct os *os, const struct sim_net_options *options)
{
    struct sim_net *net = NULL;
    uint64_t state = options->seed;

    if (options->ranks < 1 || options->delay_min_ns < 0 || options->bytes_per_us < 0 ||
        options->delay_max_ns < options->delay_min_ns)
        return NULL;
    net = os_alloc(os, sizeof *net);
    if (net == NULL)
        return NULL;
    net->os = os;
    net->options = *options;
    for (int i = 0; i < 4; i++)
        net->random[i] = sim_splitmix(&state);
    net->nodes = os_alloc(os, (size_t)options->ranks * sizeof *net->nodes);
    if (net->nodes == NULL) {
        os_free(os, net);
        return NULL;
    }
    for (int32_t rank = 0; rank < options->ranks; rank++) {
        net->nodes[rank].net = net;
        net->nodes[rank].rank = rank;
    }
    sim_os_init(net);
    return net;
}

static void node_destroy(struct sim_net *net, struct sim_node *node)
{
    for (int32_t peer = 0; node->links != NULL && peer < net->options.ranks; peer++) {
        struct sim_link *link = node->links[peer];
        struct sim_transfer *next = NULL;

        if (link == NULL)
            continue;
        for (struct sim_transfer *t = link->sends; t != NULL; t = next) {
            next = t->next;
            sim_transfer_free(net, t);
        }
        for (struct sim_transfer *t = link->flights; t != NULL; t = next) {
            next = t->next;
            sim_transfer_free(net, t);
        }
        os_free(net->os, link);
    }
    os_free(net->os, node->links);
}

void sim_net_destroy(struct sim_net *net)
{
    struct sim_item *item = NULL;

    if (net == NULL)
        return;
    while (net->heap_count > 0)
        sim_item_free(net, heap_pop(net));
    for (int32_t rank = 0; rank < net->options.ranks; rank++) {
        struct sim_node *node = &net->nodes[rank];

        while ((item = queue_pop(&node->due)) != NULL)
            sim_item_free(net, item);
        while ((item = queue_pop(&node->held)) != NULL)
            sim_item_free(net, item);
        node_destroy(net, node);
    }
    while ((item = net->spare) != NULL) {
        net->spare = item->next;
        os_free(net->os, item);
    }
    os_free(net->os, net->heap);
    os_free(net->os, net->nodes);
    os_free(net->os, net);
}

struct transport *sim_net_open(struct sim_net *net, int32_t rank,
                               const struct transport_events *events)
{
    struct sim_node *node = NULL;

    if (rank < 0 || rank >= net->options.ranks)
        return NULL;
    node = &net->nodes[rank];
    if (node->is_open || node->is_closed)
        return NULL;
    node->base.ops = &sim_transport_ops;
    node->base.os = sim_net_os(net);
    node->base.events = *events;
    node->is_open = true;
    if (!node->is_hung)
        due_list(net, node);
    return &node->base;
}

int64_t sim_net_now_ns(const struct sim_net *net)
{
    return net->now_ns;
}

uint64_t sim_net_messages(const struct sim_net *net)
{
    return net->messages;
}
