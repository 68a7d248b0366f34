/* SPDX-License-Identifier: Apache-2.0 */
/* hosts.c - see hosts.h. Every reader is a loop over characters with a cursor; nothing recurses and
 * every count has a limit, because the text may come from anywhere.
 * Thread: any.  Start reading at hosts_assign(). */
#include "hosts.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define INVALID_HOSTS                                                                              \
    "Invalid host input, please make sure it has format as : worker-0:2,worker-1:2."

struct cursor {
    const char *at, *end;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v';
}

static bool is_name_char(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '.' || c == '-';
}

static bool is_name(const char *text, size_t n)
{
    if (n == 0 || n > HOSTS_NAME_MAX || text[0] == '-')
        return false;
    for (size_t i = 0; i < n; i++)
        if (!is_name_char(text[i]))
            return false;
    return true;
}

static bool is_ipv6(const char *text, size_t n)
{
    size_t colons = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] == ':')
            colons++;
        else if (text[i] == '%' && i > 0) /* a zone: fe80::1%eth0 */
            return colons >= 2 && is_name(text + i + 1, n - i - 1);
        else if (!isxdigit((unsigned char)text[i]) && text[i] != '.')
            return false;
    }
    return colons >= 2 && n <= HOSTS_NAME_MAX;
}

/* [user@]name or [user@][v6]; splits off what has to be resolved. */
static bool host_name(struct mem *m, const char *text, size_t n, struct host *ret)
{
    const char *at = memchr(text, '@', n);
    size_t user = at == NULL ? 0 : (size_t)(at - text) + 1;
    if (user > 0 && !is_name(text, user - 1))
        return false;
    const char *name = text + user;
    size_t name_bytes = n - user;
    bool is_bracketed = name_bytes > 2 && name[0] == '[' && name[name_bytes - 1] == ']';
    if (is_bracketed) {
        name++;
        name_bytes -= 2;
    }
    bool is_good = is_bracketed ? is_ipv6(name, name_bytes)
                                : is_name(name, name_bytes) || is_ipv6(name, name_bytes);
    if (!is_good)
        return false;
    ret->address = mem_copy_n(m, name, name_bytes);
    ret->name = mem_format(m, "%.*s%s", (int)user, text, ret->address);
    return true;
}

static bool number(const char *text, size_t n, int32_t max, int32_t *ret)
{
    int64_t value = 0;
    if (n == 0 || n > 9)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (!isdigit((unsigned char)text[i]))
            return false;
        value = 10 * value + (text[i] - '0');
    }
    *ret = (int32_t)value;
    return value <= max;
}

static struct host *hosts_find(const struct hosts *hosts, const char *name)
{
    for (int32_t i = 0; i < hosts->count; i++)
        if (strcmp(hosts->items[i].name, name) == 0)
            return &hosts->items[i];
    return NULL;
}

static hvd_status_t hosts_add(struct mem *m, struct hosts *hosts, const struct host *host,
                              struct error *error)
{
    struct host *old = hosts_find(hosts, host->name);
    int64_t slots = host->slots + (old == NULL ? 0 : (int64_t)old->slots);
    if (slots > HOSTS_SLOTS_MAX)
        return error_set(error, HVD_ERR_LIMIT, "host %s: more than %d slots", host->name,
                         HOSTS_SLOTS_MAX);
    if (old != NULL) {
        old->slots = (int32_t)slots;
        return HVD_OK;
    }
    if (hosts->count == HOSTS_COUNT_MAX)
        return error_set(error, HVD_ERR_LIMIT, "more than %d hosts", HOSTS_COUNT_MAX);
    if (hosts->count == hosts->capacity) {
        int32_t capacity = hosts->capacity == 0 ? 16 : 2 * hosts->capacity;
        struct host *items = mem_alloc(m, (size_t)capacity * sizeof *items);
        if (hosts->count > 0)
            memcpy(items, hosts->items, (size_t)hosts->count * sizeof *items);
        hosts->items = items;
        hosts->capacity = capacity;
    }
    hosts->items[hosts->count++] = *host;
    return HVD_OK;
}

/* name:slots, where the name may hold colons only in brackets. */
static bool host_with_slots(struct mem *m, const char *text, size_t n, struct host *ret)
{
    size_t colon = n;
    while (colon > 0 && text[colon - 1] != ':')
        colon--;
    if (colon < 2)
        return false;
    const char *name = text;
    size_t name_bytes = colon - 1;
    bool has_colon = memchr(name, ':', name_bytes) != NULL;
    if (has_colon && name[name_bytes - 1] != ']')
        return false;
    return number(text + colon, n - colon, HOSTS_SLOTS_MAX, &ret->slots) &&
           host_name(m, name, name_bytes, ret);
}

hvd_status_t hosts_parse_list(struct mem *m, const char *text, struct hosts *ret,
                              struct error *error)
{
    *ret = (struct hosts){0};
    const char *at = text;
    for (;;) {
        size_t n = strcspn(at, ",");
        const char *item = at;
        size_t item_bytes = n;
        while (item_bytes > 0 && is_blank(item[0])) {
            item++;
            item_bytes--;
        }
        while (item_bytes > 0 && is_blank(item[item_bytes - 1]))
            item_bytes--;
        struct host host = {0};
        if (!host_with_slots(m, item, item_bytes, &host))
            return error_set(error, HVD_ERR_INVALID, INVALID_HOSTS " (in '%.*s')", (int)item_bytes,
                             item);
        if (host.slots > 0) {
            hvd_status_t status = hosts_add(m, ret, &host, error);
            if (status != HVD_OK)
                return status;
        }
        if (at[n] == '\0')
            return HVD_OK;
        at += n + 1;
    }
}

/* ---- what a discovery script prints ---- */

static hvd_status_t found_add(struct mem *m, struct hosts *hosts, const struct host *host,
                              const char **ret_twice, struct error *error)
{
    const struct host *old = hosts_find(hosts, host->name);
    if (old == NULL)
        return hosts_add(m, hosts, host, error);
    if (old->slots != host->slots)
        return error_set(error, HVD_ERR_INVALID,
                         "host %s is listed twice, with %d and with %d slots", host->name,
                         old->slots, host->slots);
    *ret_twice = old->name;
    return HVD_OK;
}

hvd_status_t hosts_parse_found(struct mem *m, const char *text, size_t n, int32_t slots,
                               struct hosts *ret, const char **ret_twice, struct error *error)
{
    *ret = (struct hosts){0};
    *ret_twice = NULL;
    int line_number = 0;
    for (const char *at = text, *end = text + n; at < end;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        const char *next = stop == NULL ? end : stop + 1;
        const char *last = stop == NULL ? end : stop;
        line_number++;
        while (at < last && is_blank(at[0]))
            at++;
        while (last > at && is_blank(last[-1]))
            last--;
        size_t bytes = (size_t)(last - at);
        struct host host = {.slots = slots};
        bool is_good = bytes == 0 || host_with_slots(m, at, bytes, &host);
        if (!is_good) {
            host.slots = slots;
            is_good = host_name(m, at, bytes, &host);
        }
        if (!is_good)
            return error_set(error, HVD_ERR_INVALID,
                             "line %d is '%.*s', which is neither HOST nor HOST:SLOTS", line_number,
                             bytes > 80 ? 80 : (int)bytes, at);
        hvd_status_t status =
            bytes > 0 && host.slots > 0 ? found_add(m, ret, &host, ret_twice, error) : HVD_OK;
        if (status != HVD_OK)
            return status;
        at = next;
    }
    return HVD_OK;
}

/* ---- host files ---- */

static struct cursor line_next(struct cursor *text)
{
    const char *end = memchr(text->at, '\n', (size_t)(text->end - text->at));
    struct cursor line = {text->at, end == NULL ? text->end : end};
    text->at = end == NULL ? text->end : end + 1;
    return line;
}

/* Comments: # and // to the end of the line. A "//" cannot be part of a host or a number. */
static void line_strip(struct cursor *line)
{
    for (const char *p = line->at; p < line->end; p++)
        if (*p == '#' || (*p == '/' && p + 1 < line->end && p[1] == '/')) {
            line->end = p;
            break;
        }
    while (line->at < line->end && is_blank(line->at[0]))
        line->at++;
    while (line->end > line->at && is_blank(line->end[-1]))
        line->end--;
}

static void skip_blanks(struct cursor *c)
{
    while (c->at < c->end && is_blank(*c->at))
        c->at++;
}

static size_t word_bytes(const struct cursor *c)
{
    size_t n = 0;
    while (c->at + n < c->end && !is_blank(c->at[n]) && c->at[n] != '=')
        n++;
    return n;
}

struct host_line {
    struct host host;
    const char *user;
    size_t user_bytes;
    int32_t max_slots; /* 0: not given */
    bool has_slots, is_excluded;
};

static bool word_is(const char *word, size_t n, const char *name)
{
    return strlen(name) == n && strncasecmp(word, name, n) == 0;
}

/* One `key = value`. Topology hints are read and have no effect. */
static bool host_setting(struct host_line *line, const char *key, size_t key_bytes,
                         const char *value, size_t value_bytes)
{
    static const char *const slot_names[] = {"slots", "slot", "count", "cpu", "cpus"};
    static const char *const max_names[] = {"max_slots", "max-slots", "slots_max", "slots-max",
                                            "cpu_max",   "cpu-max",   "count_max", "count-max"};
    static const char *const hints[] = {
        "boards", "board", "sockets_per_board", "cores_per_socket", "sockets", "socket", "core",
        "cores",  "port",  "sockets-per-board", "cores-per-socket"};
    for (size_t i = 0; i < sizeof slot_names / sizeof *slot_names; i++)
        if (word_is(key, key_bytes, slot_names[i])) {
            line->has_slots = true;
            return number(value, value_bytes, HOSTS_SLOTS_MAX, &line->host.slots);
        }
    for (size_t i = 0; i < sizeof max_names / sizeof *max_names; i++)
        if (word_is(key, key_bytes, max_names[i]))
            return number(value, value_bytes, HOSTS_SLOTS_MAX, &line->max_slots) &&
                   line->max_slots > 0;
    for (size_t i = 0; i < sizeof hints / sizeof *hints; i++)
        if (word_is(key, key_bytes, hints[i]))
            return true;
    if (word_is(key, key_bytes, "user") || word_is(key, key_bytes, "username") ||
        word_is(key, key_bytes, "user-name") || word_is(key, key_bytes, "user_name")) {
        line->user = value;
        line->user_bytes = value_bytes;
        return is_name(value, value_bytes);
    }
    return false;
}

/* The settings behind the name; *ret_what is what was wrong. */
static bool host_settings(struct cursor *c, struct host_line *line, struct cursor *ret_what)
{
    for (;;) {
        skip_blanks(c);
        if (c->at == c->end)
            return true;
        struct cursor key = {c->at, c->at + word_bytes(c)};
        *ret_what = key;
        c->at = key.end;
        skip_blanks(c);
        if (key.at == key.end || c->at == c->end || *c->at != '=')
            return false;
        c->at++;
        skip_blanks(c);
        struct cursor value = {c->at, c->at + word_bytes(c)};
        c->at = value.end;
        ret_what->end = value.end;
        if (!host_setting(line, key.at, (size_t)(key.end - key.at), value.at,
                          (size_t)(value.end - value.at)))
            return false;
    }
}

static bool host_line_name(struct mem *m, struct cursor *c, struct host_line *line)
{
    if (*c->at == '^') {
        line->is_excluded = true;
        c->at++;
        skip_blanks(c);
    }
    size_t n = word_bytes(c);
    const char *name = c->at;
    c->at += n;
    line->host.slots = 1;
    if (host_name(m, name, n, &line->host))
        return true;
    line->has_slots = true;
    return host_with_slots(m, name, n, &line->host);
}

static void hosts_remove(struct hosts *hosts, const char *name)
{
    struct host *found = hosts_find(hosts, name);
    if (found == NULL)
        return;
    size_t at = (size_t)(found - hosts->items);
    size_t behind = (size_t)hosts->count - at - 1;
    memmove(found, found + 1, behind * sizeof *found);
    hosts->count--;
}

static hvd_status_t host_line_parse(struct mem *m, const char *name, int line_number,
                                    struct cursor c, struct host_line *ret, struct error *error)
{
    struct cursor what = c;
    if (!host_line_name(m, &c, ret))
        return error_set(error, HVD_ERR_INVALID, "%s:%d: '%.*s' is not a host name", name,
                         line_number, (int)(c.at - what.at), what.at);
    if (!host_settings(&c, ret, &what))
        return error_set(error, HVD_ERR_INVALID,
                         "%s:%d: '%.*s' is not understood; a line is `host slots=N [max-slots=M]`",
                         name, line_number, (int)(what.end - what.at), what.at);
    if (ret->max_slots > 0 && ret->host.slots > ret->max_slots)
        return error_set(error, HVD_ERR_INVALID, "%s:%d: slots=%d is over max-slots=%d", name,
                         line_number, ret->host.slots, ret->max_slots);
    if (ret->user != NULL && strchr(ret->host.name, '@') == NULL)
        ret->host.name =
            mem_format(m, "%.*s@%s", (int)ret->user_bytes, ret->user, ret->host.address);
    return HVD_OK;
}

hvd_status_t hosts_parse_file(struct mem *m, const char *name, const char *text, size_t n,
                              struct hosts *ret, struct error *error)
{
    *ret = (struct hosts){0};
    struct hosts excluded = {0};
    struct cursor rest = {text, text + n};
    for (int line_number = 1; rest.at < rest.end; line_number++) {
        struct cursor c = line_next(&rest);
        line_strip(&c);
        if (c.at == c.end)
            continue;
        struct host_line line = {0};
        hvd_status_t status = host_line_parse(m, name, line_number, c, &line, error);
        if (status == HVD_OK && (line.is_excluded || line.host.slots > 0))
            status = hosts_add(m, line.is_excluded ? &excluded : ret, &line.host, error);
        if (status != HVD_OK)
            return status;
    }
    for (int32_t i = 0; i < excluded.count; i++)
        hosts_remove(ret, excluded.items[i].name);
    if (ret->count == 0)
        return error_set(error, HVD_ERR_INVALID, "%s: no host in it", name);
    return HVD_OK;
}

/* ---- node lists of batch systems ---- */

static bool slurm_tasks_next(const char **at, int32_t *slots, int32_t *repeat)
{
    size_t n = strspn(*at, "0123456789");
    if (!number(*at, n, HOSTS_SLOTS_MAX, slots))
        return false;
    *at += n;
    *repeat = 1;
    if (strncmp(*at, "(x", 2) == 0) {
        *at += 2;
        n = strspn(*at, "0123456789");
        if (!number(*at, n, HOSTS_COUNT_MAX, repeat) || (*at)[n] != ')')
            return false;
        *at += n + 1;
    }
    if (**at == ',')
        (*at)++;
    return true;
}

static hvd_status_t slurm_slots(struct hosts *hosts, const char *tasks, struct error *error)
{
    const char *at = tasks;
    int32_t i = 0;
    while (tasks != NULL && *at != '\0' && i < hosts->count) {
        int32_t slots = 0, repeat = 0;
        if (!slurm_tasks_next(&at, &slots, &repeat))
            return error_set(error, HVD_ERR_INVALID, "SLURM_TASKS_PER_NODE='%s' is not understood",
                             tasks);
        for (int32_t k = 0; k < repeat && i < hosts->count; k++)
            hosts->items[i++].slots = slots;
    }
    return HVD_OK;
}

static hvd_status_t slurm_add(struct mem *m, struct hosts *ret, const char *text, size_t n,
                              struct error *error)
{
    struct host host = {.slots = 1};
    if (!host_name(m, text, n, &host))
        return error_set(error, HVD_ERR_INVALID, "'%.*s' is not a host name", (int)n, text);
    return hosts_add(m, ret, &host, error);
}

/* Expands prefix[1-3,07]suffix; `open` is at the bracket, `close` at its end. */
static hvd_status_t slurm_range(struct mem *m, struct hosts *ret, struct cursor item,
                                const char *open, const char *close, struct error *error)
{
    for (const char *at = open + 1; at < close;) {
        size_t width = strspn(at, "0123456789");
        int32_t first = 0, last = 0;
        bool is_good = number(at, width, 999999999, &first);
        const char *next = at + width;
        last = first;
        if (is_good && *next == '-') {
            size_t n = strspn(next + 1, "0123456789");
            is_good = number(next + 1, n, 999999999, &last);
            next += n + 1;
        }
        is_good = is_good && last >= first && last - first < HOSTS_COUNT_MAX &&
                  (*next == ',' || next == close);
        if (!is_good)
            return error_set(error, HVD_ERR_INVALID, "node list: '%.*s' is not understood",
                             (int)(item.end - item.at), item.at);
        for (int32_t k = first; k <= last; k++) {
            char *name = mem_format(m, "%.*s%0*d%.*s", (int)(open - item.at), item.at, (int)width,
                                    k, (int)(item.end - close - 1), close + 1);
            hvd_status_t status = slurm_add(m, ret, name, strlen(name), error);
            if (status != HVD_OK)
                return status;
        }
        at = next < close ? next + 1 : close;
    }
    return HVD_OK;
}

hvd_status_t hosts_parse_slurm(struct mem *m, const char *nodes, const char *tasks,
                               struct hosts *ret, struct error *error)
{
    *ret = (struct hosts){0};
    for (const char *at = nodes; *at != '\0';) {
        const char *open = NULL, *close = NULL, *end = at;
        for (; *end != '\0' && (*end != ',' || (open != NULL && close == NULL)); end++) {
            if (*end == '[' && open == NULL)
                open = end;
            if (*end == ']' && open != NULL && close == NULL)
                close = end;
        }
        struct cursor item = {at, end};
        hvd_status_t status = HVD_OK;
        if (open == NULL)
            status = slurm_add(m, ret, at, (size_t)(end - at), error);
        else if (close == NULL || memchr(close, '[', (size_t)(end - close)) != NULL)
            status = error_set(error, HVD_ERR_INVALID, "node list: '%s' is not understood", at);
        else
            status = slurm_range(m, ret, item, open, close, error);
        if (status != HVD_OK)
            return status;
        at = *end == ',' ? end + 1 : end;
    }
    if (ret->count == 0)
        return error_set(error, HVD_ERR_INVALID, "the node list is empty");
    return slurm_slots(ret, tasks, error);
}

hvd_status_t hosts_parse_lsf(struct mem *m, const char *text, struct hosts *ret,
                             struct error *error)
{
    *ret = (struct hosts){0};
    struct cursor c = {text, text + strlen(text)};
    for (skip_blanks(&c); c.at < c.end; skip_blanks(&c)) {
        struct host host = {0};
        size_t n = strcspn(c.at, " \t");
        const char *name = c.at;
        c.at += n;
        skip_blanks(&c);
        size_t digits = strcspn(c.at, " \t");
        if (!host_name(m, name, n, &host) || !number(c.at, digits, HOSTS_SLOTS_MAX, &host.slots))
            return error_set(error, HVD_ERR_INVALID, "LSB_MCPU_HOSTS='%s' is not understood", text);
        c.at += digits;
        hvd_status_t status = hosts_add(m, ret, &host, error);
        if (status != HVD_OK)
            return status;
    }
    if (ret->count == 0)
        return error_set(error, HVD_ERR_INVALID, "LSB_MCPU_HOSTS is empty");
    return HVD_OK;
}

/* ---- ranks ---- */

int64_t hosts_slot_sum(const struct hosts *hosts)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < hosts->count; i++)
        sum += hosts->items[i].slots;
    return sum;
}

/* Which of the hosts that have a local rank k is this one, and how many have it?
 * Example: a:2,b:1,c:2 gives a(0,1) b(2) c(3,4); local rank 1 exists on a and c, so rank 4 has
 * cross rank 1 of 2. */
static void assign_cross(struct mem *m, struct slot *slots, int32_t count)
{
    int32_t *seen = mem_alloc(m, (size_t)count * sizeof *seen);
    for (int32_t i = 0; i < count; i++)
        slots[i].cross_rank = seen[slots[i].local_rank]++;
    for (int32_t i = 0; i < count; i++)
        slots[i].cross_size = seen[slots[i].local_rank];
}

/* "a:2,b:4", with `extra` more slots for the first host; a long list ends with "...". */
static void list_slots(const struct hosts *hosts, const char *between, int64_t extra,
                       char *ret_text, size_t bytes)
{
    size_t used = 0;
    ret_text[0] = '\0';
    for (int32_t i = 0; i < hosts->count; i++) {
        if (used >= bytes - 80) {
            snprintf(ret_text + used, bytes - used, "%s...", between);
            return;
        }
        int n =
            snprintf(ret_text + used, bytes - used, "%s%.60s:%lld", i > 0 ? between : "",
                     hosts->items[i].name, hosts->items[i].slots + (long long)(i == 0 ? extra : 0));
        used += n > 0 ? (size_t)n : 0;
    }
}

/* "a:2 + b:4 = 6", so that a typing error in the list shows. */
static hvd_status_t slots_error(const struct hosts *hosts, int32_t count, int64_t sum,
                                struct error *error)
{
    char given[320], enough[320];
    list_slots(hosts, " + ", 0, given, sizeof given);
    list_slots(hosts, ",", count - sum, enough, sizeof enough);
    return error_set(error, HVD_ERR_INVALID,
                     "Requested more processes (%d) than there are available slots (%lld): %s = "
                     "%lld. Lower -np to %lld, or give a host more slots: -H %s",
                     count, (long long)sum, given, (long long)sum, (long long)sum, enough);
}

hvd_status_t hosts_assign(struct mem *m, const struct hosts *hosts, int32_t count,
                          struct slot **ret, struct error *error)
{
    int64_t sum = hosts_slot_sum(hosts);
    if (count < 1)
        return error_set(error, HVD_ERR_INVALID, "-np must be at least 1");
    if (sum < count)
        return slots_error(hosts, count, sum, error);
    struct slot *slots = mem_alloc(m, (size_t)count * sizeof *slots);
    int32_t rank = 0;
    for (int32_t h = 0; h < hosts->count && rank < count; h++) {
        int32_t left = count - rank;
        int32_t local_size = hosts->items[h].slots < left ? hosts->items[h].slots : left;
        for (int32_t k = 0; k < local_size; k++, rank++)
            slots[rank] = (struct slot){
                .host = h, .rank = rank, .local_rank = k, .size = count, .local_size = local_size};
    }
    assign_cross(m, slots, count);
    *ret = slots;
    return HVD_OK;
}
