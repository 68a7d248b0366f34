/* SPDX-License-Identifier: Apache-2.0 */
/* dashboard.c - see dashboard.h. */
#include "dashboard.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "client.h"
#include "http.h"
#include "job.h"
#include "survey.h"

#define TOKEN_BYTES 16
#define BACKLOG     16
#define CHUNK       4096u
#define READS_MAX   16 /* of one client in one round */

enum { WANTS_JSON = 1, HAS_ANSWER };

/* dashboard.html; written by cmake/embed.cmake */
extern const unsigned char dashboard_page[];
extern const size_t dashboard_page_bytes;

struct dashboard {
    struct clients clients;
    struct job_tag tag;
    char token[2 * TOKEN_BYTES + 1];
    char slow[sizeof((struct ask_status *)NULL)->slow]; /* as last noted */
};

/* ---- requests ---- */

/* Takes the same time wherever the two differ. */
static bool is_token(const struct dashboard *d, const char *text)
{
    unsigned difference = 0;
    if (strlen(text) != sizeof d->token - 1)
        return false;
    for (size_t i = 0; i < sizeof d->token - 1; i++)
        difference |= (unsigned char)text[i] ^ (unsigned char)d->token[i];
    return difference == 0;
}

static void answer(struct job *job, struct client *c, int code, const char *type, const void *body,
                   size_t n)
{
    http_write(job->os, &c->out, code, type, body, n);
    c->kind = HAS_ANSWER;
}

static void refuse(struct job *job, struct client *c, int code)
{
    const char *text = code == 403 ? "The token in the address is missing or wrong. horovodrun has "
                                     "printed the whole address at its start.\n"
                                   : "horovodrun answers only GET / and GET /job.json here.\n";
    answer(job, c, code, "text/plain; charset=utf-8", text, strlen(text));
}

static void request(struct job *job, const struct dashboard *d, struct client *c)
{
    struct http_request r;
    int code = http_read((const char *)bytes_at(&c->in), bytes_used(&c->in), &r);
    if (code == HTTP_MORE)
        return;
    if (code != 200)
        refuse(job, c, code);
    else if (!is_token(d, r.token))
        refuse(job, c, 403);
    else if (strcmp(r.path, "/") == 0)
        answer(job, c, 200, "text/html; charset=utf-8", dashboard_page, dashboard_page_bytes);
    else if (strcmp(r.path, "/job.json") == 0)
        c->kind = WANTS_JSON;
    else
        refuse(job, c, 404);
}

static void client_read(struct job *job, const struct dashboard *d, struct client *c)
{
    for (int i = 0; i < READS_MAX; i++) {
        int64_t n = job->os->recv(job->os->ctx, c->fd, bytes_room(job->os, &c->in, CHUNK), CHUNK);
        if (n == -EAGAIN || n == -EINTR)
            return;
        if (n <= 0) {
            client_close(job, c);
            return;
        }
        if (c->kind != 0)
            continue; /* what follows the request is dropped */
        bytes_grew(&c->in, (size_t)n);
        request(job, d, c);
    }
}

void dashboard_event(struct job *job, int64_t now_ns)
{
    struct dashboard *d = job->dashboard;
    if (d == NULL)
        return;
    client_accept(job, &d->clients, now_ns, NULL);
    for (int i = 0; i < CLIENTS_MAX; i++) {
        struct client *c = &d->clients.items[i];
        if (c->fd >= 0)
            client_read(job, d, c);
        if (c->fd >= 0 && bytes_used(&c->out) > 0)
            client_flush(job, &d->clients, c);
    }
}

/* ---- answers ---- */

/* Only rank 0 knows which ranks are slow; what changes is an event. */
static void slow_note(struct job *job, struct dashboard *d, const struct survey *s)
{
    const char *slow = s->count > 0 && s->ranks[0].has_status ? s->ranks[0].status.slow : d->slow;
    if (strcmp(slow, d->slow) == 0)
        return;
    if (slow[0] != '\0')
        output_note(&job->output, "Slow: rank %s.", slow);
    else
        output_note(&job->output, "No rank is slow any more.");
    snprintf(d->slow, sizeof d->slow, "%s", slow);
}

static void json_answer(struct job *job, struct dashboard *d, struct client *c)
{
    struct bytes body = {0};
    dashboard_json(job, job->survey, &body);
    answer(job, c, 200, "application/json", bytes_at(&body), bytes_used(&body));
    bytes_free(job->os, &body);
    client_flush(job, &d->clients, c);
}

void dashboard_tick(struct job *job, int64_t now_ns)
{
    struct dashboard *d = job->dashboard;
    if (d == NULL)
        return;
    bool is_ready = job->survey != NULL && job->survey->is_ready;
    if (is_ready)
        slow_note(job, d, job->survey);
    for (int i = 0; i < CLIENTS_MAX; i++) {
        struct client *c = &d->clients.items[i];
        if (c->fd >= 0 && c->kind == WANTS_JSON && is_ready)
            json_answer(job, d, c);
        else if (c->fd >= 0 && c->kind == WANTS_JSON)
            survey_want(job, false, now_ns);
        if (c->fd >= 0 && now_ns >= c->until_ns)
            client_close(job, c);
    }
}

/* ---- opening and closing ---- */

static int listen_at(const struct os *os, uint16_t port, uint16_t *ret_port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    unsigned bytes = sizeof address;
    int yes = 1, fd = os->socket(os->ctx, AF_INET, SOCK_STREAM);
    if (fd < 0)
        return fd;
    os->sockopt_set(os->ctx, fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    int rc = os->bind(os->ctx, fd, (const struct sockaddr *)&address, sizeof address);
    if (rc == 0)
        rc = os->listen(os->ctx, fd, BACKLOG);
    if (rc == 0)
        rc = os->getsockname(os->ctx, fd, (struct sockaddr *)&address, &bytes);
    *ret_port = ntohs(address.sin_port);
    if (rc == 0)
        return fd;
    os->close(os->ctx, fd);
    return rc;
}

hvd_status_t dashboard_open(struct job *job, struct error *error)
{
    uint8_t random[TOKEN_BYTES];
    uint16_t port = 0;
    if (!job->args->dashboard.is_set)
        return HVD_OK;
    int fd = listen_at(job->os, (uint16_t)job->args->dashboard.value, &port);
    if (fd < 0)
        return error_set_os(error, fd,
                            "--dashboard can't listen on 127.0.0.1:%u; without a number a free "
                            "port is used",
                            (unsigned)job->args->dashboard.value);
    if (job->os->random(job->os->ctx, random, sizeof random) < 0) {
        job->os->close(job->os->ctx, fd);
        return error_set(error, HVD_ERR_INTERNAL, "--dashboard: there are no random numbers");
    }
    struct dashboard *d = mem_alloc(job->mem, sizeof *d);
    for (int i = 0; i < TOKEN_BYTES; i++)
        snprintf(d->token + 2 * i, 3, "%02x", random[i]);
    d->tag.kind = JOB_TAG_DASHBOARD;
    clients_open(job, &d->clients, fd, &d->tag);
    job->dashboard = d;
    output_say(&job->output, 2, "horovodrun: dashboard: http://127.0.0.1:%u/?token=%s", port,
               d->token);
    job->output.event_count = 0; /* the address is not an event of the job */
    return HVD_OK;
}

void dashboard_close(struct job *job)
{
    if (job->dashboard != NULL)
        clients_close(job, &job->dashboard->clients);
    job->dashboard = NULL;
}
