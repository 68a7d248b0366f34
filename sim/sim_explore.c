/* SPDX-License-Identifier: Apache-2.0 */
/* sim_explore.c - see sim_explore.h.
 *
 * A world here has its own links (first in, first out, for each pair of ranks) and its own clock,
 * both advanced only by the search; collectives run on a sim_board. One choice is one event at one
 * rank, after which its engine runs until it has nothing left to do. */
#include "sim_explore.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/map.h"
#include "engine/engine.h"
#include "engine/message.h"
#include "sim_backend.h"
#include "sim_world.h"

#define DEPTH_MAX  400
#define OPS_MAX    12
#define TURNS_MAX  100
#define SECOND_NS  1000000000LL
#define LIMIT_S    2 /* of stalls: what a timeout jumps over */
#define CLOSING_S  30
#define CHOICE_MAX 32

enum pick_kind {
    PICK_SUBMIT,
    PICK_DELIVER,
    PICK_TURN,
    PICK_CRASH,
    PICK_DOWN,
    PICK_TIMEOUT,
    PICK_SWAP
};

struct pick {
    enum pick_kind kind;
    int32_t rank, from;
};

struct note { /* a message in transit */
    struct note *next;
    size_t bytes;
    uint8_t message[];
};

struct call { /* an op of a rank's program */
    char letter;
    int32_t turn; /* of its name on this rank */
    struct ticket *ticket;
    hvd_status_t refused; /* by the submit itself */
    float in[8], out[8];
};

struct port {
    struct transport base;
    struct world *world;
    int32_t rank;
    int32_t taking; /* the peer whose message the next progress() delivers, -1: none */
};

struct actor {
    struct engine *engine;
    struct backend *backend;
    struct port port;
    struct transport *routes[EXPLORE_RANKS_MAX];
    struct note *in[EXPLORE_RANKS_MAX]; /* by sender */
    const char *program;
    struct call calls[OPS_MAX];
    int32_t call_count;
    uint64_t history;
    bool is_woken, is_crashed, has_asked;
    bool is_down_told[EXPLORE_RANKS_MAX];
};

struct world {
    struct os os;
    const struct os *host;
    struct config config;
    struct log log;
    struct sim_board *board;
    struct actor actors[EXPLORE_RANKS_MAX];
    int32_t hosts[EXPLORE_RANKS_MAX];
    int32_t ranks, crashes, timeouts;
    int64_t now_ns;
    bool has_swapped;
    const struct explore_options *options;
    struct explore_report *report;
};

struct walk { /* the path, and at each step what else there was to choose */
    const struct explore_options *options;
    struct explore_report *report;
    const struct os *os;
    struct pick steps[DEPTH_MAX];
    struct pick others[DEPTH_MAX][CHOICE_MAX];
    int32_t other_count[DEPTH_MAX];
    int32_t depth;
    uint64_t *seen; /* hash table of states, 0 = free */
    size_t seen_capacity;
};

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t z = a * 0x9e3779b97f4a7c15u + b + 0x7f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* ---- links ---- */

static bool port_reaches(const struct transport *t, int32_t peer)
{
    const struct port *p = (const struct port *)t;
    return peer >= 0 && peer < p->world->ranks && peer != p->rank;
}

static hvd_status_t port_send(struct transport *t, int32_t peer, const void *bytes, size_t n)
{
    struct port *p = (struct port *)t;
    struct actor *to = &p->world->actors[peer];
    const struct os *os = p->world->host;
    if (to->is_crashed)
        return HVD_ERR_PEER_DEAD;
    struct note **end = &to->in[p->rank];
    int32_t waiting = 0;
    for (; *end != NULL; end = &(*end)->next)
        waiting++;
    uint8_t type = ((const uint8_t *)bytes)[0];
    if (p->world->options->plant == EXPLORE_PLANT_LOSE && waiting > 0 &&
        peer == p->world->ranks - 1 && type == MESSAGE_RESPONSE)
        return HVD_OK;
    struct note *note = os_alloc(os, sizeof *note + n);
    if (note == NULL)
        return HVD_ERR_NO_MEMORY;
    note->bytes = n;
    memcpy(note->message, bytes, n);
    *end = note;
    return HVD_OK;
}

static bool port_progress(struct transport *t, int64_t now_ns)
{
    struct port *p = (struct port *)t;
    struct actor *self = &p->world->actors[p->rank];
    int32_t from = p->taking;
    (void)now_ns;
    p->taking = -1;
    if (from < 0 || self->in[from] == NULL)
        return false;
    struct note *note = self->in[from];
    self->in[from] = note->next;
    self->history = mix(self->history, hash_bytes(note->message, note->bytes));
    t->events.message(t->events.ctx, from, note->message, note->bytes);
    os_free(p->world->host, note);
    return true;
}

static bool port_sleep_begin(struct transport *t)
{
    (void)t;
    return true;
}

static void port_sleep_end(struct transport *t)
{
    (void)t;
}

static uint8_t *port_arena(const struct transport *t, int32_t peer, uint64_t *ret_bytes)
{
    (void)t;
    (void)peer;
    *ret_bytes = 0;
    return NULL;
}

static void port_notify(struct transport *t, int32_t peer)
{
    (void)t;
    (void)peer;
}

static void port_destroy(struct transport *t)
{
    (void)t;
}

static const struct transport_ops port_ops = {.version = TRANSPORT_VERSION,
                                              .name = "explore",
                                              .reaches = port_reaches,
                                              .message_send = port_send,
                                              .progress = port_progress,
                                              .sleep_begin = port_sleep_begin,
                                              .sleep_end = port_sleep_end,
                                              .arena = port_arena,
                                              .notify = port_notify,
                                              .destroy = port_destroy};

/* ---- a world ---- */

static int64_t world_now_ns(void *ctx)
{
    const struct world *w = ctx;
    return w->now_ns;
}

static void on_board(void *ctx, int32_t rank)
{
    struct world *w = ctx;
    w->actors[rank].is_woken = true;
}

static void log_drop(void *arg, enum log_level level, const char *line)
{
    (void)arg;
    (void)level;
    (void)line;
}

static bool actor_open(struct world *w, int32_t rank)
{
    struct actor *a = &w->actors[rank];
    struct error error = {0};
    a->program = w->options->programs[rank];
    a->port = (struct port){
        .base = {.ops = &port_ops, .os = &w->os}, .world = w, .rank = rank, .taking = -1};
    for (int32_t i = 0; i < w->ranks; i++)
        a->routes[i] = i != rank ? &a->port.base : NULL;
    if (sim_backend_create(&w->os, w->board, rank, &a->backend, &error) != HVD_OK)
        return false;
    struct engine_options options = {.os = &w->os,
                                     .config = &w->config,
                                     .log = &w->log,
                                     .rank = rank,
                                     .size = w->ranks,
                                     .routes = a->routes,
                                     .transports = {&a->port.base},
                                     .transport_count = 1,
                                     .host = w->hosts,
                                     .backend = a->backend,
                                     .is_host_sight = true};
    if (engine_create(&options, &a->engine, &error) != HVD_OK)
        return false;
    a->port.base.events = control_events(a->engine);
    return sets_open(a->engine, NULL, NULL, 0, &error) == HVD_OK;
}

static void actor_close(struct world *w, struct actor *a)
{
    engine_destroy(a->engine);
    a->engine = NULL;
    if (a->backend != NULL)
        a->backend->ops->destroy(a->backend);
    a->backend = NULL;
    for (int32_t i = 0; i < w->ranks; i++)
        while (a->in[i] != NULL) {
            struct note *next = a->in[i]->next;
            os_free(w->host, a->in[i]);
            a->in[i] = next;
        }
}

static void world_close(struct world *w)
{
    for (int32_t i = 0; i < w->ranks; i++)
        actor_close(w, &w->actors[i]);
    sim_board_destroy(w->board);
    os_free(w->host, w);
}

static struct world *world_open(const struct walk *walk)
{
    struct world *w = os_alloc(walk->os, sizeof *w);
    struct error error = {0};
    if (w == NULL)
        return NULL;
    w->host = walk->os;
    w->os = *walk->os;
    sim_world_env_none(&w->os);
    w->options = walk->options;
    w->report = walk->report;
    w->ranks = walk->options->ranks;
    w->crashes = walk->options->crashes;
    w->timeouts = walk->options->timeouts;
    w->now_ns = SECOND_NS;
    w->log = (struct log){.level = LOG_FATAL, .rank = -1, .sink = log_drop};
    bool is_ok = config_load(&w->os, &w->config, NULL, NULL, &error) == HVD_OK;
    w->os.ctx = w; /* the real table's calls ignore it */
    w->os.now_ns = world_now_ns;
    w->config.cycle_time_ms = 0;
    w->config.stall_check_time_s = 1;
    w->config.stall_shutdown_time_s = LIMIT_S;
    w->config.plan_disable = walk->options->plan_warmup == 0;
    w->config.plan_warmup_steps = walk->options->plan_warmup;
    struct sim_board_events events = {.ctx = w, .wake = on_board};
    w->board = sim_board_create(walk->os, &events);
    for (int32_t i = 0; is_ok && i < w->ranks; i++)
        is_ok = actor_open(w, i);
    if (is_ok)
        return w;
    world_close(w);
    return NULL;
}

/* ---- programs ---- */

static float value_of(int32_t rank, char letter)
{
    return (float)((rank + 1) * (1 << (rank * 8)) + (letter & 31));
}

static bool is_done(const struct call *c)
{
    return c->ticket == NULL || ticket_status(c->ticket) != HVD_IN_PROGRESS;
}

static bool is_blocked(const struct actor *a)
{
    for (int32_t i = 0; i < a->call_count; i++)
        if (!is_done(&a->calls[i]) && (*a->program == '.' || a->calls[i].letter == 'j'))
            return true;
    return false;
}

/* Steps over waits that are over. */
static bool has_next(struct actor *a)
{
    while (*a->program == '.' && !is_blocked(a))
        a->program++;
    return a->engine != NULL && *a->program != '\0' && !is_blocked(a);
}

static void op_submit(struct world *w, int32_t rank, char letter)
{
    struct actor *a = &w->actors[rank];
    struct call *c = &a->calls[a->call_count++];
    char name[2] = {(char)(letter | 32), '\0'};
    struct error error = {0};
    int64_t count = letter < 'a' ? 3 : letter == 'h' ? rank + 1 : 2;
    c->letter = letter;
    for (int32_t i = 0; i < a->call_count - 1; i++)
        c->turn += (a->calls[i].letter | 32) == (letter | 32);
    for (int i = 0; i < 8; i++)
        c->in[i] = value_of(rank, letter);
    hvd_op_t op = {.struct_size = sizeof op,
                   .kind = letter == 'h'   ? HVD_ALLGATHER
                           : letter == 'z' ? HVD_BROADCAST
                           : letter == 'y' ? HVD_BARRIER
                           : letter == 'j' ? HVD_JOIN
                                           : HVD_ALLREDUCE,
                   .name = name,
                   .reduce = HVD_SUM,
                   .prescale = 1,
                   .postscale = 1,
                   .input = {c->in, &count, 1, HVD_FLOAT32, HVD_DEVICE_CPU}};
    op.output = op.input;
    op.output.data = op.kind == HVD_ALLGATHER ? NULL : c->out;
    c->refused = submit_ops(a->engine, &op, 1, &c->ticket, &error);
}

static void engine_run(struct world *w, int32_t rank)
{
    struct actor *a = &w->actors[rank];
    bool is_waiting = is_blocked(a) || *a->program == '\0';
    if (is_waiting && !engine_has_waiters(a->engine))
        engine_wait_begin(a->engine);
    else if (!is_waiting && engine_has_waiters(a->engine))
        engine_wait_end(a->engine);
    a->is_woken = false;
    int32_t turns = 0;
    while (engine_progress(a->engine, w->now_ns) && turns < TURNS_MAX)
        turns++;
    if (turns == TURNS_MAX)
        sim_violate(&w->report->verdict, "rank %d never comes to rest", rank);
    const hvd_stats_t *s = engine_stats(a->engine);
    a->history = mix(a->history, s->batches * 31 + s->ops_completed);
    a->history = mix(a->history, s->messages_sent * 31 + (uint64_t)engine_broken(a->engine));
}

static void crash(struct world *w, int32_t rank)
{
    actor_close(w, &w->actors[rank]);
    w->actors[rank].is_crashed = true;
    w->crashes--;
}

/* A crash is noticed: what was still in transit from there is lost. */
static void down(struct world *w, int32_t rank, int32_t from)
{
    struct actor *a = &w->actors[rank];
    while (a->in[from] != NULL) {
        struct note *next = a->in[from]->next;
        os_free(w->host, a->in[from]);
        a->in[from] = next;
    }
    a->is_down_told[from] = true;
    a->port.base.events.peer_down(a->port.base.events.ctx, from, HVD_ERR_PEER_DEAD,
                                  "its connection is closed");
}

static void submit_next(struct world *w, int32_t rank)
{
    struct actor *a = &w->actors[rank];
    char letter = *a->program++;
    if (letter != 's') {
        op_submit(w, rank, letter);
        return;
    }
    a->has_asked = true;
    engine_shutdown_ask(a->engine);
}

static void step_do(struct world *w, const struct pick *s)
{
    struct actor *a = &w->actors[s->rank];
    a->history = mix(a->history, (uint64_t)s->kind * 16 + (uint64_t)(s->from + 1));
    switch (s->kind) {
    case PICK_SUBMIT: submit_next(w, s->rank); break;
    case PICK_DELIVER: a->port.taking = s->from; break;
    case PICK_TURN: break;
    case PICK_CRASH: crash(w, s->rank); return;
    case PICK_DOWN: down(w, s->rank, s->from); break;
    case PICK_TIMEOUT:
        w->timeouts--;
        w->now_ns += (LIMIT_S + 1) * SECOND_NS;
        for (int32_t i = 0; i < w->ranks; i++)
            if (w->actors[i].engine != NULL)
                engine_run(w, i);
        return;
    case PICK_SWAP: {
        struct note *first = a->in[s->from], *second = first->next;
        first->next = second->next;
        second->next = first;
        a->in[s->from] = second;
        w->has_swapped = true;
        return;
    }
    }
    engine_run(w, s->rank);
}

/* ---- choices ---- */

static void choice_add(struct pick *ret, int32_t *count, enum pick_kind kind, int32_t rank,
                       int32_t from)
{
    if (*count < CHOICE_MAX)
        ret[(*count)++] = (struct pick){.kind = kind, .rank = rank, .from = from};
}

static int32_t choices(struct world *w, bool has_faults, struct pick *ret)
{
    int32_t count = 0;
    for (int32_t r = 0; r < w->ranks; r++) {
        struct actor *a = &w->actors[r];
        if (a->engine == NULL)
            continue;
        for (int32_t from = 0; from < w->ranks; from++) {
            if (a->in[from] != NULL)
                choice_add(ret, &count, PICK_DELIVER, r, from);
            if (a->in[from] != NULL && a->in[from]->next != NULL && has_faults &&
                w->options->plant == EXPLORE_PLANT_SWAP && !w->has_swapped)
                choice_add(ret, &count, PICK_SWAP, r, from);
            if (w->actors[from].is_crashed && !a->is_down_told[from])
                choice_add(ret, &count, PICK_DOWN, r, from);
        }
        if (a->is_woken)
            choice_add(ret, &count, PICK_TURN, r, -1);
        if (has_next(a))
            choice_add(ret, &count, PICK_SUBMIT, r, -1);
    }
    bool is_quiet = count == 0;
    for (int32_t r = 0; has_faults && !is_quiet && w->crashes > 0 && r < w->ranks; r++)
        if (w->actors[r].engine != NULL)
            choice_add(ret, &count, PICK_CRASH, r, -1);
    if (has_faults && !is_quiet && w->timeouts > 0)
        choice_add(ret, &count, PICK_TIMEOUT, 0, -1);
    return count;
}

/* ---- at the end of a path ---- */

/* Nothing is left to choose: what still waits can only be ended by its time limits. */
static void closing(struct world *w)
{
    struct pick choice[CHOICE_MAX];
    for (int second = 0; second < CLOSING_S; second++) {
        for (int guard = 0; guard < 1000 && choices(w, false, choice) > 0; guard++)
            step_do(w, &choice[0]);
        w->now_ns += SECOND_NS;
        for (int32_t i = 0; i < w->ranks; i++)
            if (w->actors[i].engine != NULL)
                engine_run(w, i);
    }
}

static bool is_right(const struct world *w, int32_t rank, const struct call *c)
{
    float sum = 0;
    struct ticket_result result;
    ticket_result(c->ticket, 0, &result);
    switch (c->letter) {
    case 'y':
    case 'j': return true;
    case 'z': return c->out[0] == value_of(0, 'z') && c->out[1] == c->out[0];
    case 'h':
        for (int32_t r = 0, at = 0; r < w->ranks; r++)
            for (int32_t i = 0; i <= r; i++, at++)
                if (((const float *)result.made)[at] != value_of(r, 'h'))
                    return false;
        return true;
    default: break;
    }
    /* A rank that has joined contributes nothing: any sum that includes this rank's part can be
     * right. */
    for (int32_t mask = 1; mask < 1 << w->ranks; mask++) {
        bool can_miss = true;
        sum = 0;
        for (int32_t r = 0; r < w->ranks; r++) {
            bool is_in = (mask >> r & 1) != 0;
            sum += is_in ? value_of(r, c->letter) : 0;
            if (!is_in && (r == rank || strchr(w->options->programs[r], 'j') == NULL))
                can_miss = false;
        }
        if (can_miss && c->out[0] == sum && c->out[1] == sum)
            return true;
    }
    return false;
}

static const struct call *call_find(const struct actor *a, char letter, int32_t turn)
{
    for (int32_t i = 0; i < a->call_count; i++)
        if ((a->calls[i].letter | 32) == (letter | 32) && a->calls[i].turn == turn)
            return &a->calls[i];
    return NULL;
}

static int32_t status_of(const struct call *c)
{
    return c->ticket != NULL ? (int32_t)ticket_status(c->ticket) : (int32_t)c->refused;
}

static void path_check(struct world *w)
{
    bool has_fault = w->crashes < w->options->crashes || w->timeouts < w->options->timeouts;
    bool has_shutdown = false;
    closing(w);
    for (int32_t r = 0; r < w->ranks; r++)
        has_shutdown = has_shutdown || strchr(w->options->programs[r], 's') != NULL;
    for (int32_t r = 0; r < w->ranks; r++) {
        struct actor *a = &w->actors[r];
        for (int32_t i = 0; a->engine != NULL && i < a->call_count; i++) {
            const struct call *c = &a->calls[i];
            int32_t status = status_of(c);
            if (status == HVD_IN_PROGRESS)
                sim_violate(&w->report->verdict, "rank %d waits for ever for op %d (%c)", r, i,
                            c->letter);
            if (status == HVD_OK && !is_right(w, r, c))
                sim_violate(&w->report->verdict, "rank %d: wrong result of op %d (%c): %g", r, i,
                            c->letter, (double)c->out[0]);
            for (int32_t k = 0; !has_fault && !has_shutdown && k < w->ranks; k++) {
                const struct call *other = call_find(&w->actors[k], c->letter, c->turn);
                if (other != NULL && status_of(other) != status)
                    sim_violate(&w->report->verdict, "op %c: status %d on rank %d, %d on rank %d",
                                c->letter, status, r, status_of(other), k);
            }
        }
        if (a->engine != NULL && *a->program != '\0')
            sim_violate(&w->report->verdict, "rank %d does not come to the end of its program", r);
        if (a->engine != NULL && a->has_asked && !engine_is_over(a->engine))
            sim_violate(&w->report->verdict, "rank %d waits for ever for its shutdown", r);
    }
    if (sim_board_violation(w->board) != NULL)
        sim_violate(&w->report->verdict, "%s", sim_board_violation(w->board));
}

/* ---- the walk ---- */

/* true: this state is new. */
static bool state_note(struct walk *walk, const struct world *w)
{
    uint64_t hash = mix((uint64_t)w->now_ns, (uint64_t)w->crashes * 16 + (uint64_t)w->timeouts);
    for (int32_t r = 0; r < w->ranks; r++)
        hash = mix(hash, w->actors[r].history + w->actors[r].is_crashed);
    hash += hash == 0;
    size_t at = hash & (walk->seen_capacity - 1);
    for (; walk->seen[at] != 0; at = (at + 1) & (walk->seen_capacity - 1))
        if (walk->seen[at] == hash)
            return false;
    walk->seen[at] = hash;
    walk->report->states++;
    return true;
}

static bool seen_grow(struct walk *walk)
{
    if (walk->seen != NULL && walk->report->states * 2 < walk->seen_capacity)
        return true;
    size_t capacity = walk->seen_capacity != 0 ? walk->seen_capacity * 2 : 1 << 16;
    uint64_t *seen = os_alloc(walk->os, capacity * sizeof *seen);
    if (seen == NULL)
        return false;
    for (size_t i = 0; i < walk->seen_capacity; i++) {
        if (walk->seen[i] == 0)
            continue;
        size_t at = walk->seen[i] & (capacity - 1);
        while (seen[at] != 0)
            at = (at + 1) & (capacity - 1);
        seen[at] = walk->seen[i];
    }
    os_free(walk->os, walk->seen);
    walk->seen = seen;
    walk->seen_capacity = capacity;
    return true;
}

static void path_trace(const struct walk *walk)
{
    static const char *const names[] = {"submits",
                                        "takes a message of",
                                        "takes a turn",
                                        "crashes",
                                        "hears the end of",
                                        "(a time limit passes)",
                                        "gets messages swapped of"};
    char line[120];
    for (int32_t i = 0; walk->options->trace != NULL && i < walk->depth; i++) {
        const struct pick *s = &walk->steps[i];
        snprintf(line, sizeof line, "%3d  rank %d %s", i, s->rank, names[s->kind]);
        size_t n = strlen(line);
        if (s->from >= 0)
            snprintf(line + n, sizeof line - n, " rank %d", s->from);
        walk->options->trace(line);
    }
}

/* Replays the path and continues from its end, always with the first choice, until a state is known
 * or nothing is left to choose. */
static bool path_walk(struct walk *walk)
{
    struct world *w = world_open(walk);
    bool is_known = false;
    if (w == NULL)
        return false;
    walk->report->paths++;
    walk->report->steps += (uint64_t)walk->depth;
    for (int32_t i = 0; i < walk->depth; i++) {
        struct pick ignored[CHOICE_MAX];
        choices(w, true, ignored); /* moves programs on, as it did the first time */
        step_do(w, &walk->steps[i]);
    }
    while (walk->depth < DEPTH_MAX && walk->report->verdict.is_ok) {
        if (!seen_grow(walk))
            break;
        is_known = !state_note(walk, w);
        int32_t count = is_known ? 0 : choices(w, true, walk->others[walk->depth]);
        walk->other_count[walk->depth] = count;
        if (count == 0)
            break;
        walk->steps[walk->depth] = walk->others[walk->depth][--walk->other_count[walk->depth]];
        step_do(w, &walk->steps[walk->depth]);
        walk->depth++;
        walk->report->steps++;
        if (walk->depth > walk->report->depth)
            walk->report->depth = walk->depth;
    }
    if (walk->depth == DEPTH_MAX)
        sim_violate(&walk->report->verdict, "a path longer than %d", DEPTH_MAX);
    if (!is_known && walk->report->verdict.is_ok)
        path_check(w);
    if (!walk->report->verdict.is_ok)
        path_trace(walk);
    world_close(w);
    return walk->report->verdict.is_ok;
}

/* Back to the last step that has something else to choose; false: none has. */
static bool path_next(struct walk *walk)
{
    while (walk->depth > 0) {
        int32_t at = walk->depth - 1;
        if (walk->other_count[at] > 0) {
            walk->steps[at] = walk->others[at][--walk->other_count[at]];
            return true;
        }
        walk->depth--;
    }
    return false;
}

bool sim_explore(const struct os *os, const struct explore_options *options,
                 struct explore_report *ret)
{
    memset(ret, 0, sizeof *ret);
    ret->verdict.is_ok = true;
    struct walk *walk = os_alloc(os, sizeof *walk);
    if (walk == NULL)
        return false;
    walk->options = options;
    walk->report = ret;
    walk->os = os;
    bool has_more = true;
    while (has_more && path_walk(walk)) {
        has_more = path_next(walk);
        if (options->states_max > 0 && ret->states >= options->states_max)
            break;
    }
    ret->is_complete = ret->verdict.is_ok && !has_more;
    os_free(os, walk->seen);
    os_free(os, walk);
    return ret->verdict.is_ok;
}
