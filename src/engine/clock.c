/* SPDX-License-Identifier: Apache-2.0 */
/* clock.c - see clock.h. */
#include "engine/clock.h"

#include "engine/control.h"
#include "engine/engine_private.h"
#include "engine/timeline.h"

enum { CLOCK_QUESTION, CLOCK_ANSWER };

static void send(struct engine *engine, int32_t peer, uint8_t word, int64_t asked_ns, int64_t ns)
{
    uint8_t bytes[MESSAGE_HEAD_BYTES + 1 + 8 + 8];
    struct writer w;
    struct message_head head = {.type = MESSAGE_CLOCK};
    writer_init(&w, bytes, sizeof bytes);
    message_head_put(&w, &head);
    put_u8(&w, word);
    put_i64(&w, asked_ns);
    put_i64(&w, ns);
    control_send(engine, peer, bytes, w.used);
}

static void ask(struct engine *engine)
{
    engine->clock.sent_ns = os_now_ns(engine->os);
    send(engine, 0, CLOCK_QUESTION, engine->clock.sent_ns, 0);
}

void clock_tick(struct engine *engine)
{
    struct clock *clock = &engine->clock;
    if (engine->rank == 0 || !engine->config->timeline_all_ranks || clock->sent_ns != 0 ||
        engine->now_ns < clock->next_ns || atomic_load(&engine->is_stopped))
        return;
    clock->rounds_left = CLOCK_ROUNDS;
    clock->best = (struct clock_sync){.error_ns = -1};
    ask(engine);
}

/* An answer to a question that was not asked is ignored: nothing depends on it but a trace. */
static void on_answer(struct engine *engine, int64_t asked_ns, int64_t peer_ns)
{
    struct clock *clock = &engine->clock;
    if (clock->sent_ns == 0 || asked_ns != clock->sent_ns)
        return;
    if (!clock_take(clock, peer_ns, os_now_ns(engine->os))) {
        ask(engine);
        return;
    }
    clock->next_ns = engine->now_ns + CLOCK_AGAIN_NS;
    timeline_clock(engine->timeline, clock->best.at_ns, clock->best.offset_ns,
                   clock->best.error_ns);
}

bool clock_message(struct engine *engine, int32_t peer, struct reader *r)
{
    uint8_t word = get_u8(r);
    int64_t asked_ns = get_i64(r), ns = get_i64(r);
    if (!reader_done(r) || asked_ns < 0 || ns < 0 || word > CLOCK_ANSWER)
        return false;
    if (word == CLOCK_QUESTION && !atomic_load(&engine->is_stopped))
        send(engine, peer, CLOCK_ANSWER, asked_ns, os_now_ns(engine->os));
    else if (word == CLOCK_ANSWER && peer == 0)
        on_answer(engine, asked_ns, ns);
    return true;
}
