/* SPDX-License-Identifier: Apache-2.0 */
/* store_table.c - scopes, values and exchanges; see store_table.h.
 *
 * Thread: the server's loop.  Owner: struct store_server.
 * Invariants: a waiter is in exactly the list of waiter->scope, or in none; an index of an
 * unfinished exchange has a blob exactly while its waiter waits; a finished exchange has a reply,
 * no blobs and no waiters; a scope with neither values, exchange, roster nor waiters does not
 * exist.  Start reading at table_join(), then table_exchange(). */
#include "wire/store_table.h"

#include <stdio.h>
#include <string.h>

#define ABSENT_NAMED_MAX 16 /* ranks named in a text; the rest is counted */
#define ABSENT_TEXT      " ranks have not arrived: "

struct value {
    struct reply *reply; /* of GET */
    size_t key_bytes;
    char key[];
};

struct blob {
    uint8_t *bytes; /* NULL: not here */
    size_t n;
    bool has_left; /* was here in this epoch, and went again */
};

struct exchange {
    bool is_begun;
    uint64_t epoch;
    uint32_t count, arrived;
    struct blob *blobs;  /* count; NULL when finished */
    struct reply *reply; /* when finished */
};

TAILQ_HEAD(waiter_list, waiter);

struct scope {
    struct map values;
    struct roster roster;
    struct exchange exchange;
    struct waiter_list waiters;
    size_t name_bytes;
    char name[];
};

void table_init(struct table *t, struct budget *budget)
{
    t->budget = budget;
    map_init(&t->scopes, budget->os);
}

static struct scope *scope_find(const struct table *t, const char *name)
{
    return map_get(&t->scopes, name, strlen(name));
}

static struct scope *scope_make(struct table *t, const char *name)
{
    struct scope *s = scope_find(t, name);
    size_t n = strlen(name);
    if (s != NULL)
        return s;
    s = budget_take(t->budget, sizeof *s + n + 1);
    if (s == NULL)
        return NULL;
    memcpy(s->name, name, n + 1);
    s->name_bytes = n;
    map_init(&s->values, t->budget->os);
    TAILQ_INIT(&s->waiters);
    if (map_put(&t->scopes, s->name, n, s) < 0) {
        budget_give(t->budget, s, sizeof *s + n + 1);
        return NULL;
    }
    return s;
}

static void value_free(struct table *t, struct value *v)
{
    reply_unref(v->reply);
    budget_give(t->budget, v, sizeof *v + v->key_bytes + 1);
}

static void exchange_reset(struct table *t, struct exchange *x)
{
    for (uint32_t i = 0; x->blobs != NULL && i < x->count; i++)
        budget_give(t->budget, x->blobs[i].bytes, x->blobs[i].n + 1);
    budget_give(t->budget, x->blobs, x->count * sizeof *x->blobs);
    reply_unref(x->reply);
    memset(x, 0, sizeof *x);
}

static void scope_free(struct table *t, struct scope *s)
{
    struct value *v;
    size_t cursor = 0;
    while ((v = map_next(&s->values, &cursor)) != NULL)
        value_free(t, v);
    map_destroy(&s->values);
    exchange_reset(t, &s->exchange);
    roster_reset(&s->roster, t->budget);
    map_remove(&t->scopes, s->name, s->name_bytes);
    budget_give(t->budget, s, sizeof *s + s->name_bytes + 1);
}

static void scope_drop_if_empty(struct table *t, struct scope *s)
{
    if (s->values.count == 0 && !s->exchange.is_begun && s->roster.epoch == 0 &&
        s->roster.judge.ask == NULL && TAILQ_EMPTY(&s->waiters))
        scope_free(t, s);
}

void table_destroy(struct table *t)
{
    struct scope *s;
    if (t->budget == NULL)
        return;
    for (;;) {
        size_t cursor = 0; /* from the start each time: freeing moves entries */
        s = map_next(&t->scopes, &cursor);
        if (s == NULL)
            break;
        scope_free(t, s);
    }
    map_destroy(&t->scopes);
}

/* Takes the waiter out of its list first, so that whatever answer() does cannot meet it there. */
static void waiter_answer(struct waiter *w, struct reply *reply)
{
    TAILQ_REMOVE(&w->scope->waiters, w, link);
    w->scope = NULL;
    w->answer(w, reply);
}

static void waiter_add(struct scope *s, struct waiter *w)
{
    w->scope = s;
    TAILQ_INSERT_TAIL(&s->waiters, w, link);
}

/* Answers all waiters of one kind in the scope. answer() may close connections and so shorten the
 * list under our feet: start over after each. */
static void answer_all(struct scope *s, enum waiter_kind kind, const char *key, struct reply *reply)
{
    struct waiter *w = TAILQ_FIRST(&s->waiters);
    while (w != NULL) {
        bool is_meant = w->kind == kind && (key == NULL || strcmp(w->key, key) == 0);
        if (!is_meant) {
            w = TAILQ_NEXT(w, link);
            continue;
        }
        waiter_answer(w, reply);
        w = TAILQ_FIRST(&s->waiters);
    }
}

/* ---- keys ---- */

static struct reply *value_reply(struct table *t, const void *blob, size_t n)
{
    uint8_t *room;
    struct writer w;
    struct reply *reply = reply_create(t->budget, n + 4, &room);
    if (reply == NULL)
        return NULL;
    writer_init(&w, room, n + 4);
    put_blob(&w, blob, n);
    return reply;
}

const void *table_blob(const struct reply *value, size_t *ret_n)
{
    const uint8_t *room = reply_room(value, ret_n);
    *ret_n -= 4;
    return room + 4;
}

static hvd_status_t value_add(struct table *t, struct scope *s, const char *key,
                              struct reply *reply)
{
    size_t n = strlen(key);
    if (s->values.count >= STORE_COUNT_MAX)
        return HVD_ERR_LIMIT;
    struct value *v = budget_take(t->budget, sizeof *v + n + 1);
    if (v == NULL)
        return HVD_ERR_LIMIT;
    memcpy(v->key, key, n + 1);
    v->key_bytes = n;
    if (map_put(&s->values, v->key, n, v) < 0) {
        budget_give(t->budget, v, sizeof *v + n + 1);
        return HVD_ERR_NO_MEMORY;
    }
    v->reply = reply;
    return HVD_OK;
}

hvd_status_t table_put(struct table *t, const char *scope, const char *key, const void *blob,
                       size_t n)
{
    if (strlen(scope) > STORE_KEY_MAX || strlen(key) > STORE_KEY_MAX || n > STORE_BLOB_MAX)
        return HVD_ERR_LIMIT;
    struct scope *s = scope_make(t, scope);
    if (s == NULL)
        return HVD_ERR_LIMIT;
    struct reply *reply = value_reply(t, blob, n);
    struct value *v = map_get(&s->values, key, strlen(key));
    hvd_status_t status = HVD_OK;
    if (reply == NULL) {
        status = HVD_ERR_LIMIT;
    } else if (v != NULL) {
        reply_unref(v->reply);
        v->reply = reply;
    } else {
        status = value_add(t, s, key, reply);
    }
    if (status != HVD_OK) {
        reply_unref(reply);
        scope_drop_if_empty(t, s);
        return status;
    }
    answer_all(s, WAITER_GET, key, reply);
    return HVD_OK;
}

struct reply *table_get(const struct table *t, const char *scope, const char *key)
{
    const struct scope *s = scope_find(t, scope);
    const struct value *v = s != NULL ? map_get(&s->values, key, strlen(key)) : NULL;
    return v != NULL ? v->reply : NULL;
}

hvd_status_t table_wait(struct table *t, const char *scope, const char *key, struct waiter *waiter)
{
    struct scope *s = scope_make(t, scope);
    if (s == NULL)
        return HVD_ERR_LIMIT;
    waiter->kind = WAITER_GET;
    snprintf(waiter->key, sizeof waiter->key, "%s", key);
    waiter_add(s, waiter);
    return HVD_OK;
}

/* ---- exchanges ---- */

static hvd_status_t exchange_begin(struct table *t, struct scope *s,
                                   const struct store_request *request)
{
    struct blob *blobs = budget_take(t->budget, request->count * sizeof *blobs);
    if (blobs == NULL)
        return HVD_ERR_LIMIT;
    struct reply *stale =
        s->exchange.is_begun && !TAILQ_EMPTY(&s->waiters)
            ? reply_status(t->budget, HVD_ERR_STALE,
                           "exchange \"%s\": epoch %llu has begun, epoch %llu is given up", s->name,
                           (unsigned long long)request->epoch,
                           (unsigned long long)s->exchange.epoch)
            : NULL;
    exchange_reset(t, &s->exchange);
    s->exchange = (struct exchange){
        .is_begun = true, .epoch = request->epoch, .count = request->count, .blobs = blobs};
    answer_all(s, WAITER_EXCHANGE, NULL, stale);
    reply_unref(stale);
    return HVD_OK;
}

/* One answer for everybody: count, lengths, bytes. */
static struct reply *exchange_reply(struct table *t, const struct exchange *x)
{
    size_t total = 4 + (size_t)x->count * 4;
    uint8_t *room;
    struct writer w;
    for (uint32_t i = 0; i < x->count; i++)
        total += x->blobs[i].n;
    struct reply *reply = reply_create(t->budget, total, &room);
    if (reply == NULL)
        return NULL;
    writer_init(&w, room, total);
    put_u32(&w, x->count);
    for (uint32_t i = 0; i < x->count; i++)
        put_u32(&w, (uint32_t)x->blobs[i].n);
    for (uint32_t i = 0; i < x->count; i++)
        put_bytes(&w, x->blobs[i].bytes, x->blobs[i].n);
    return reply;
}

/* All have arrived: everyone but the last, who gets the returned reference, is answered here. */
static struct reply *exchange_finish(struct table *t, struct scope *s)
{
    struct exchange *x = &s->exchange;
    struct reply *reply = exchange_reply(t, x);
    if (reply == NULL) {
        reply =
            reply_status(t->budget, HVD_ERR_LIMIT,
                         "exchange \"%s\": the store is full, the answer does not fit", s->name);
        x->arrived = 0;
        for (uint32_t i = 0; i < x->count; i++) {
            budget_give(t->budget, x->blobs[i].bytes, x->blobs[i].n + 1);
            x->blobs[i] = (struct blob){0};
        }
        answer_all(s, WAITER_EXCHANGE, NULL, reply);
        return reply;
    }
    uint64_t epoch = x->epoch;
    uint32_t count = x->count;
    exchange_reset(t, x);
    *x = (struct exchange){
        .is_begun = true, .epoch = epoch, .count = count, .arrived = count, .reply = reply};
    answer_all(s, WAITER_EXCHANGE, NULL, reply);
    return reply_ref(reply);
}

/* Does it bring what it brought to the finished exchange? Then it has lost its connection. */
static bool is_repeat(const struct scope *s, const struct store_request *request)
{
    struct reader r;
    size_t n;
    const uint8_t *room = reply_room(s->exchange.reply, &n);
    size_t at = 4 + (size_t)s->exchange.count * 4, bytes = 0;
    reader_init(&r, room, n);
    get_u32(&r);
    for (uint32_t i = 0; i <= request->index; i++) {
        at += bytes;
        bytes = get_u32(&r);
    }
    return bytes == request->blob_bytes &&
           (bytes == 0 || memcmp(room + at, request->blob, bytes) == 0);
}

/* Why the request cannot take part in the exchange as it stands, or NULL. */
static struct reply *exchange_refuse(struct table *t, const struct scope *s,
                                     const struct store_request *request)
{
    const struct exchange *x = &s->exchange;
    uint64_t at = s->roster.epoch > x->epoch ? s->roster.epoch : x->epoch;
    if (request->epoch < at)
        return reply_status(t->budget, HVD_ERR_STALE,
                            "exchange \"%s\" is at epoch %llu, epoch %llu has passed", s->name,
                            (unsigned long long)at, (unsigned long long)request->epoch);
    if (s->roster.is_over && request->epoch == s->roster.epoch)
        return reply_status(t->budget, HVD_ERR_STALE, "exchange \"%s\": epoch %llu is given up",
                            s->name, (unsigned long long)request->epoch);
    if (s->roster.epoch != 0 && request->epoch > s->roster.epoch)
        return reply_status(t->budget, HVD_ERR_STALE,
                            "exchange \"%s\" is at epoch %llu, epoch %llu has not begun", s->name,
                            (unsigned long long)at, (unsigned long long)request->epoch);
    if (s->roster.is_driven && request->count != s->roster.count)
        return reply_status(t->budget, HVD_ERR_MISMATCH,
                            "exchange \"%s\": rank %u counts %u ranks, the epoch has %u", s->name,
                            request->index, request->count, s->roster.count);
    if (!x->is_begun || request->epoch > x->epoch)
        return NULL;
    if (request->count != x->count)
        return reply_status(t->budget, HVD_ERR_MISMATCH,
                            "exchange \"%s\": rank %u counts %u ranks, others count %u", s->name,
                            request->index, request->count, x->count);
    if (x->reply == NULL)
        return NULL;
    if (!is_repeat(s, request))
        return reply_status(t->budget, HVD_ERR_STALE,
                            "exchange \"%s\" of epoch %llu has finished without this process",
                            s->name, (unsigned long long)x->epoch);
    return reply_ref(x->reply);
}

/* A rank that comes again before all have arrived has lost its first connection: the new one
 * counts. */
static void exchange_displace(struct table *t, struct scope *s, uint32_t index)
{
    struct waiter *w;
    TAILQ_FOREACH(w, &s->waiters, link)
    {
        if (w->kind != WAITER_EXCHANGE || w->index != index)
            continue;
        struct reply *reply = reply_status(t->budget, HVD_ERR_DUPLICATE,
                                           "exchange \"%s\": rank %u came again on another "
                                           "connection",
                                           s->name, index);
        waiter_answer(w, reply);
        reply_unref(reply);
        return;
    }
}

static void blob_take_back(struct table *t, struct exchange *x, uint32_t index)
{
    if (x->blobs == NULL || index >= x->count || x->blobs[index].bytes == NULL)
        return;
    budget_give(t->budget, x->blobs[index].bytes, x->blobs[index].n + 1);
    x->blobs[index] = (struct blob){.has_left = true};
    x->arrived--;
}

static bool blob_bring(struct table *t, struct exchange *x, const struct store_request *request)
{
    /* one byte more, so that an empty blob has an address and counts as arrived */
    uint8_t *bytes = budget_take(t->budget, request->blob_bytes + 1);
    if (bytes == NULL)
        return false;
    if (request->blob_bytes > 0)
        memcpy(bytes, request->blob, request->blob_bytes);
    x->blobs[request->index] = (struct blob){.bytes = bytes, .n = request->blob_bytes};
    x->arrived++;
    return true;
}

static struct reply *reply_full(struct table *t)
{
    return reply_status(t->budget, HVD_ERR_LIMIT, "the store is full (%zu of %zu bytes in use)",
                        t->budget->used, t->budget->max);
}

struct reply *table_exchange(struct table *t, const struct store_request *request,
                             struct waiter *waiter)
{
    struct scope *s = scope_make(t, request->scope);
    if (s == NULL)
        return reply_full(t);
    struct reply *refusal = exchange_refuse(t, s, request);
    if (refusal != NULL) {
        scope_drop_if_empty(t, s);
        return refusal;
    }
    if (!s->exchange.is_begun || request->epoch > s->exchange.epoch) {
        if (exchange_begin(t, s, request) != HVD_OK) {
            scope_drop_if_empty(t, s);
            return reply_full(t);
        }
    }
    exchange_displace(t, s, request->index);
    blob_take_back(t, &s->exchange, request->index);
    if (!blob_bring(t, &s->exchange, request))
        return reply_full(t);
    if (s->exchange.arrived == s->exchange.count)
        return exchange_finish(t, s);
    waiter->kind = WAITER_EXCHANGE;
    waiter->index = request->index;
    waiter_add(s, waiter);
    return NULL;
}

/* ---- generations ---- */

static bool is_met(const struct scope *s)
{
    return s->roster.epoch != 0 && s->exchange.epoch == s->roster.epoch &&
           s->exchange.reply != NULL;
}

/* The exchange of a generation that is over has nobody to wait for: its members join again. */
static void exchange_give_up(struct table *t, struct scope *s)
{
    struct exchange *x = &s->exchange;
    if (!x->is_begun || x->epoch >= s->roster.epoch)
        return;
    struct reply *stale = reply_status(
        t->budget, HVD_ERR_STALE, "exchange \"%s\": epoch %llu has begun, epoch %llu is given up",
        s->name, (unsigned long long)s->roster.epoch, (unsigned long long)x->epoch);
    exchange_reset(t, x);
    answer_all(s, WAITER_EXCHANGE, NULL, stale);
    reply_unref(stale);
}

/* NULL: it is early, or there was no memory to say anything. */
static struct reply *join_answer(struct table *t, struct scope *s, const struct store_request *q,
                                 enum roster_verdict *ret_verdict)
{
    struct roster_refusal refusal = {.status = HVD_ERR_STALE};
    uint64_t before = s->roster.epoch;
    *ret_verdict = roster_join(&s->roster, t->budget, q, is_met(s), &refusal);
    if (s->roster.epoch != before)
        exchange_give_up(t, s);
    switch (*ret_verdict) {
    case ROSTER_IN: return roster_reply(&s->roster, t->budget);
    case ROSTER_EARLY: return NULL;
    case ROSTER_OUT:
        return reply_status(t->budget, refusal.status,
                            "worker \"%s\" was refused by epoch %llu of \"%s\": %s", q->worker,
                            (unsigned long long)s->roster.epoch, s->name, refusal.why);
    case ROSTER_FULL: return reply_full(t);
    }
    return NULL;
}

struct reply *table_join(struct table *t, const struct store_request *request,
                         struct waiter *waiter)
{
    enum roster_verdict verdict;
    struct scope *s = scope_make(t, request->scope);
    if (s == NULL)
        return reply_full(t);
    struct reply *reply = join_answer(t, s, request, &verdict);
    if (verdict == ROSTER_EARLY) {
        waiter->kind = WAITER_JOIN;
        waiter->epoch = request->epoch;
        waiter->life = request->life;
        snprintf(waiter->key, sizeof waiter->key, "%s", request->worker);
        waiter_add(s, waiter);
    } else {
        scope_drop_if_empty(t, s);
    }
    return reply;
}

/* The next of those who wait to join and can be answered, out of the list, or NULL. */
static struct waiter *join_ready(struct table *t, struct scope *s, struct reply **ret_reply)
{
    struct waiter *w;
    TAILQ_FOREACH(w, &s->waiters, link)
    {
        enum roster_verdict verdict;
        struct store_request q = {.epoch = w->epoch, .life = w->life};
        if (w->kind != WAITER_JOIN)
            continue;
        memcpy(q.worker, w->key, sizeof q.worker);
        *ret_reply = join_answer(t, s, &q, &verdict);
        if (verdict != ROSTER_EARLY)
            return w;
    }
    return NULL;
}

static void join_review(struct table *t, struct scope *s)
{
    struct waiter *w;
    struct reply *reply = NULL;
    while ((w = join_ready(t, s, &reply)) != NULL) {
        waiter_answer(w, reply);
        reply_unref(reply);
    }
}

hvd_status_t table_judge(struct table *t, const char *scope, const struct store_judge *judge)
{
    struct scope *s = scope_make(t, scope);
    if (s == NULL)
        return HVD_ERR_LIMIT;
    s->roster.judge = *judge;
    s->roster.is_driven = true;
    return HVD_OK;
}

bool table_abandon(struct table *t, const char *scope)
{
    struct scope *s = scope_find(t, scope);
    if (s == NULL || s->roster.epoch == 0 || s->roster.is_over)
        return false;
    s->roster.is_over = true;
    if (!s->exchange.is_begun)
        return false;
    if (s->exchange.reply != NULL)
        return true;
    struct reply *stale =
        reply_status(t->budget, HVD_ERR_STALE, "exchange \"%s\": epoch %llu is given up", s->name,
                     (unsigned long long)s->roster.epoch);
    exchange_reset(t, &s->exchange);
    answer_all(s, WAITER_EXCHANGE, NULL, stale);
    reply_unref(stale);
    return false;
}

void table_review(struct table *t, const char *scope)
{
    struct scope *s = scope_find(t, scope);
    if (s != NULL)
        join_review(t, s);
}

hvd_status_t table_generation(struct table *t, const char *scope, uint64_t epoch,
                              const struct store_member *members, uint32_t count, uint64_t notice)
{
    if (strlen(scope) > STORE_KEY_MAX)
        return HVD_ERR_LIMIT;
    struct scope *s = scope_make(t, scope);
    hvd_status_t status = s == NULL
                              ? HVD_ERR_LIMIT
                              : roster_drive(&s->roster, t->budget, epoch, members, count, notice);
    if (status != HVD_OK) {
        if (s != NULL)
            scope_drop_if_empty(t, s);
        return status;
    }
    exchange_give_up(t, s);
    join_review(t, s);
    return HVD_OK;
}

uint64_t table_epoch(const struct table *t, const char *scope, bool *ret_is_met)
{
    const struct scope *s = scope_find(t, scope);
    *ret_is_met = s != NULL && is_met(s);
    return s != NULL ? s->roster.epoch : 0;
}

enum store_standing table_standing(const struct table *t, const char *scope, const char *worker)
{
    const struct scope *s = scope_find(t, scope);
    if (s == NULL)
        return STORE_ABSENT;
    if (table_is_waiting(t, scope, worker))
        return STORE_WAITING;
    const struct roster *r = &s->roster;
    const struct exchange *x = &s->exchange;
    for (uint32_t i = 0; r->members != NULL && i < r->count; i++) {
        if (strcmp(r->members[i].worker, worker) != 0)
            continue;
        bool is_here =
            x->is_begun && x->epoch == r->epoch && (x->reply != NULL || x->blobs[i].bytes != NULL);
        return is_here ? STORE_ARRIVED : r->lives[i] != 0 ? STORE_JOINED : STORE_ABSENT;
    }
    return STORE_ABSENT;
}

bool table_is_waiting(const struct table *t, const char *scope, const char *worker)
{
    const struct scope *s = scope_find(t, scope);
    const struct waiter *w;
    if (s == NULL)
        return false;
    TAILQ_FOREACH(w, &s->waiters, link)
    {
        if (w->kind == WAITER_JOIN && strcmp(w->key, worker) == 0)
            return true;
    }
    return false;
}

static struct reply *join_missing(const struct table *t, const struct waiter *w)
{
    const struct scope *s = w->scope;
    return reply_status(t->budget, HVD_ERR_TIMEOUT,
                        "worker \"%s\" waits for an epoch of \"%s\" that has not begun; it is at "
                        "epoch %llu",
                        w->key, s->name, (unsigned long long)s->roster.epoch);
}

int32_t table_arrived(const struct table *t, const char *scope, uint64_t epoch,
                      uint8_t *ret_present, int32_t count)
{
    const struct scope *s = scope_find(t, scope);
    int32_t arrived = 0;
    if (count <= 0)
        return 0;
    memset(ret_present, 0, ((size_t)count + 7) / 8);
    if (s == NULL || !s->exchange.is_begun ||
        (epoch != STORE_EPOCH_ANY && s->exchange.epoch != epoch))
        return 0;
    for (uint32_t i = 0; i < s->exchange.count && i < (uint32_t)count; i++) {
        if (s->exchange.reply == NULL && s->exchange.blobs[i].bytes == NULL)
            continue;
        ret_present[i / 8] = (uint8_t)(ret_present[i / 8] | (1u << (i % 8)));
        arrived++;
    }
    return arrived;
}

/* Names the ranks that have left (or have never come) and counts them. */
static uint32_t list_absent(const struct exchange *x, bool has_left, char *ret_list, size_t bytes)
{
    uint32_t count = 0;
    size_t at = 0;
    ret_list[0] = '\0';
    for (uint32_t i = 0; i < x->count; i++) {
        if (x->blobs[i].bytes != NULL || x->blobs[i].has_left != has_left)
            continue;
        if (count < ABSENT_NAMED_MAX)
            at += (size_t)snprintf(ret_list + at, bytes - at, "%s%u", count > 0 ? ", " : "", i);
        else if (count == ABSENT_NAMED_MAX)
            snprintf(ret_list + at, bytes - at, ", ...");
        count++;
    }
    return count;
}

int32_t store_missing_rank(const char *text, const char **ret_summary)
{
    const char *at = strstr(text, ABSENT_TEXT), *colon = strstr(text, ": ");
    int rank = -1;
    if (strncmp(text, "exchange ", 9) != 0 || at == NULL || colon == NULL ||
        sscanf(at + strlen(ABSENT_TEXT), "%d", &rank) != 1)
        return -1;
    *ret_summary = colon + 2;
    return rank;
}

static struct reply *exchange_missing(const struct table *t, const struct scope *s)
{
    const struct exchange *x = &s->exchange;
    char list[ABSENT_NAMED_MAX * 12 + 8], missing[256] = "", left[256] = "";
    uint32_t count = list_absent(x, false, list, sizeof list);
    if (count > 0)
        snprintf(missing, sizeof missing, ": %u of %u" ABSENT_TEXT "%s", count, x->count, list);
    count = list_absent(x, true, list, sizeof list);
    if (count > 0)
        snprintf(left, sizeof left, "%s %u of %u ranks came and left again: %s",
                 missing[0] != '\0' ? ";" : ":", count, x->count, list);
    return reply_status(t->budget, HVD_ERR_TIMEOUT, "exchange \"%s\" of epoch %llu%s%s", s->name,
                        (unsigned long long)x->epoch, missing, left);
}

struct reply *table_missing(const struct table *t, const struct waiter *waiter)
{
    if (waiter->kind == WAITER_EXCHANGE)
        return exchange_missing(t, waiter->scope);
    if (waiter->kind == WAITER_JOIN)
        return join_missing(t, waiter);
    return reply_status(t->budget, HVD_ERR_TIMEOUT, "key \"%s\" of \"%s\" was not put", waiter->key,
                        waiter->scope->name);
}

void table_forget(struct table *t, struct waiter *waiter)
{
    struct scope *s = waiter->scope;
    if (s == NULL)
        return;
    TAILQ_REMOVE(&s->waiters, waiter, link);
    waiter->scope = NULL;
    if (waiter->kind == WAITER_EXCHANGE)
        blob_take_back(t, &s->exchange, waiter->index);
    scope_drop_if_empty(t, s);
}

void table_delete(struct table *t, const char *scope)
{
    struct scope *s = scope_find(t, scope);
    if (s == NULL)
        return;
    struct reply *gone = reply_status(t->budget, HVD_ERR_ABORTED, "\"%s\" was deleted", s->name);
    answer_all(s, WAITER_EXCHANGE, NULL, gone);
    answer_all(s, WAITER_JOIN, NULL, gone);
    answer_all(s, WAITER_GET, NULL, gone);
    reply_unref(gone);
    scope_free(t, s);
}
