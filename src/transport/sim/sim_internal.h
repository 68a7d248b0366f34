/* SPDX-License-Identifier: Apache-2.0 */
/* sim_internal.h - what sim_net.c (time and faults), sim_transport.c (the ops of one rank) and
 * sim_os.c share.
 *
 * An item is a future event: it waits in the heap until its time, then in the due list of its rank
 * until that rank's progress(), or in a hung rank's held list.
 *
 * links[from] of node `to` is the direction from -> to. A posted send is a transfer in `sends`
 * until it is matched with a receive of the same stream; then it is in `flights` until both
 * requests are done, forgotten or failed.
 *
 * Invariant: a request that is not complete is reachable from exactly one link, so that a crash, a
 * cancel or a closed link finds it. Thread: one. */
#ifndef HVD_TRANSPORT_SIM_INTERNAL_H
#define HVD_TRANSPORT_SIM_INTERNAL_H

#include "transport/sim/sim_net.h"

#define SIM_ITEM_SMALL      256u  /* payload of items that are pooled */
#define SIM_MESSAGES_MAX    1024u /* in transit on one link; then message_send returns HVD_AGAIN */
#define HEARTBEAT_NS        1000000000LL
#define SIM_EAGER_BYTES_MAX (64u << 10) /* sends up to here may complete before the receiver's */

enum sim_kind { SIM_MESSAGE, SIM_ARRIVAL, SIM_SEND_DONE, SIM_DOWN, SIM_WAKE };

struct sim_transfer {
    struct sim_transfer *next;
    struct transport_req *send; /* NULL: done, cancelled or crashed */
    struct transport_req *recv;
    uint8_t *copy; /* eager: the bytes; NULL: they are read from send->send */
    size_t bytes;
    uint64_t stream;
    bool is_matched; /* in `flights`, else in `sends` */
    uint8_t items;   /* events that still point here */
    bool has_data;   /* the receive buffer is filled */
};

struct sim_item {
    struct sim_item *next;
    int64_t time_ns;
    uint64_t turn; /* breaks ties: first scheduled, first served */
    enum sim_kind kind;
    int32_t from, to;            /* `to` is the rank whose progress() handles it */
    hvd_status_t status;         /* DOWN */
    struct sim_transfer *flight; /* ARRIVAL, SEND_DONE */
    size_t bytes;
    size_t capacity;
    uint8_t payload[];
};

struct sim_queue {
    struct sim_item *head, *tail;
};

struct sim_link { /* one direction; see nodes[to].links[from] */
    int64_t message_last_ns, bulk_last_ns;
    uint32_t messages; /* in transit */
    bool is_down;      /* `to` was notified, or is about to be, that `from` has left */
    bool is_told;
    hvd_status_t down_status;
    struct sim_transfer *sends, *flights;
    struct transport_req *recvs;
};

struct sim_node {
    struct transport base; /* first */
    struct sim_net *net;
    int32_t rank;
    bool is_open, is_closed, is_crashed, is_hung, is_listed, has_run;
    int64_t extra_ns;
    int64_t hung_ns; /* since when, while is_hung */
    struct sim_queue due, held;
    struct sim_node *due_next, *due_prev;
    struct sim_link **links; /* by sender; entries appear at the first use */
    uint64_t messages, bytes;
};

struct sim_slot { /* heap entry, with the order inside so that sifting stays in one array */
    int64_t time_ns;
    uint64_t turn;
    struct sim_item *item;
};

struct sim_net {
    const struct os *os;
    struct os table;
    struct sim_net_options options;
    uint64_t random[4];
    int64_t now_ns;
    uint64_t turn, messages;
    struct sim_slot *heap;
    size_t heap_count, heap_capacity;
    struct sim_item *spare; /* pooled items */
    struct sim_node *nodes;
    struct sim_node *due_head, *due_tail;
};

/* sim_net.c */
struct sim_item *sim_item_new(struct sim_net *net, enum sim_kind kind, int32_t from, int32_t to,
                              size_t bytes);
void sim_item_free(struct sim_net *net, struct sim_item *item);
/* Takes over the item; -ENOMEM frees it. */
int sim_schedule(struct sim_net *net, struct sim_item *item, int64_t time_ns);
void sim_settle(struct sim_net *net); /* moves what is due now to its ranks */
int64_t sim_delay_ns(struct sim_net *net, int32_t from, int32_t to);
struct sim_item *sim_due_pop(struct sim_node *node);
void sim_due_unlist(struct sim_net *net, struct sim_node *node);
/* The link, or NULL without memory. */
struct sim_link *sim_link_get(struct sim_net *net, int32_t from, int32_t to);
/* Notifies `to` at `time_ns` that `from` has left. */
void sim_link_cut(struct sim_net *net, int32_t from, int32_t to, int64_t time_ns,
                  hvd_status_t status);
void sim_node_leave(struct sim_net *net, struct sim_node *node, bool is_crash);

/* sim_transport.c */
extern const struct transport_ops sim_transport_ops;
void sim_flight_release(struct sim_net *net, struct sim_link *link, struct sim_transfer *flight);
void sim_transfer_free(struct sim_net *net, struct sim_transfer *transfer);
/* Removes every request of one end from this direction, without completing it. */
void sim_link_forget(struct sim_net *net, struct sim_link *link, bool is_sender);

/* sim_os.c */
void sim_os_init(struct sim_net *net);

#endif
