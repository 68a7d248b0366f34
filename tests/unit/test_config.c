/* SPDX-License-Identifier: Apache-2.0 */
/* test_config.c - the settings table: defaults, every type, warnings, errors, secrets. The
 * environment is a fake one in the os table. */
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/config.h"
#include "schedule/schedule.h"

#define VARIABLES_MAX 80

struct fixture {
    struct os os;
    char names[VARIABLES_MAX][64], values[VARIABLES_MAX][2048];
    int count;
    char warnings[VARIABLES_MAX][512];
    int warning_count;
    struct config config;
    struct error error;
};

static const char *fake_env(void *ctx, const char *name)
{
    struct fixture *f = ctx;
    for (int i = 0; i < f->count; i++) {
        if (strcmp(f->names[i], name) == 0)
            return f->values[i];
    }
    return NULL;
}

static void fake_env_each(void *ctx, void (*fn)(void *arg, const char *name, const char *value),
                          void *arg)
{
    struct fixture *f = ctx;
    for (int i = 0; i < f->count; i++)
        fn(arg, f->names[i], f->values[i]);
}

static void fake_env_wipe(void *ctx, const char *name)
{
    struct fixture *f = ctx;
    for (int i = 0; i < f->count; i++) {
        if (strcmp(f->names[i], name) == 0)
            f->values[i][0] = '\0';
    }
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    if (f == NULL)
        return -1;
    f->os = (struct os){
        .ctx = f, .env = fake_env, .env_each = fake_env_each, .env_wipe = fake_env_wipe};
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    free(*state);
    return 0;
}

static void set(struct fixture *f, const char *name, const char *value)
{
    assert_true(f->count < VARIABLES_MAX);
    (void)snprintf(f->names[f->count], sizeof f->names[0], "%s", name);
    (void)snprintf(f->values[f->count], sizeof f->values[0], "%s", value);
    f->count++;
}

/* Each is "name=value". */
static void set_all(struct fixture *f, const char *const *variables)
{
    for (; *variables != NULL; variables++) {
        char name[sizeof f->names[0]];
        size_t n = strcspn(*variables, "=");
        (void)snprintf(name, sizeof name, "%.*s", (int)n, *variables);
        set(f, name, *variables + n + 1);
    }
}

#define SET(f, ...) set_all(f, (const char *const[]){__VA_ARGS__, NULL})

static void catch_warning(void *arg, const char *text)
{
    struct fixture *f = arg;
    assert_true(f->warning_count < VARIABLES_MAX);
    (void)snprintf(f->warnings[f->warning_count++], sizeof f->warnings[0], "%s", text);
}

static hvd_status_t load(struct fixture *f)
{
    f->warning_count = 0;
    error_clear(&f->error);
    return config_load(&f->os, &f->config, catch_warning, f, &f->error);
}

static void load_well(struct fixture *f)
{
    assert_int_equal(load(f), HVD_OK);
    assert_string_equal(f->error.text, "");
}

static void defaults(void **state)
{
    struct fixture *f = *state;
    set(f, "PATH", "/bin");
    set(f, "HOROVODX", "1");
    load_well(f);
    assert_int_equal(f->warning_count, 0);
    const struct config *c = &f->config;
    assert_true(c->rank == -1 && c->size == -1 && c->local_rank == -1 && c->local_size == -1);
    assert_true(c->cross_rank == -1 && c->cross_size == -1 && c->rendezvous_port == -1);
    assert_true(c->key_fd == -1 && c->spin_us == -1 && c->cma == -1 && c->epoch == 0);
    assert_true(c->fusion_threshold_bytes == 134217728 && c->cycle_time_ms == 1.0);
    assert_true(c->cache_capacity == 1024 && c->plan_warmup_steps == 3);
    assert_true(c->stall_check_time_s == 60 && c->stall_shutdown_time_s == 1800);
    assert_true(c->hung_warn_s == 5 && c->hung_error_s == 10 && c->timeout_s == 30);
    assert_true(c->adasum_chunk_bytes == 1073741824 && c->arena_max_bytes == 0);
    assert_true(c->autotune_warmup_samples == 3 && c->autotune_steps_per_sample == 10);
    assert_true(c->autotune_bayes_opt_max_samples == 20);
    assert_true(c->autotune_gaussian_process_noise == 0.8);
    assert_true(c->tcp_flows >= 1);
    assert_false(c->elastic || c->dynamic_process_sets || c->autotune || c->log_hide_time);
    assert_int_equal(c->log_level, LOG_WARNING);
    assert_string_equal(c->security, "auth");
    assert_string_equal(c->controller, "");
    assert_string_equal(c->timeline, "");
}

/* Set every row to something else and see that it arrives in its field and nowhere else. */
static void every_row_reaches_its_field(void **state)
{
    struct fixture *f = *state;
    load_well(f);
    struct config plain = f->config;
    for (size_t i = 0; i < setting_count; i++) {
        const struct setting *row = &setting_rows[i];
        if (!setting_is_config(row))
            continue;
        const char *value = "7";
        bool is_switch = row->type == TYPE_SWITCH || row->type == TYPE_NONZERO;
        bool is_on = is_switch && strcmp(row->fallback, "1") == 0;
        if (is_on)
            value = "0";
        if (row->type == TYPE_LEVEL)
            value = "debug";
        if (strcmp(row->name, "HOROVOD_CONTROLLER") == 0 ||
            strcmp(row->name, "HOROVOD_CPU_OPERATIONS") == 0)
            value = "gloo";
        if (strcmp(row->name, "HOROVOD_SECURITY") == 0)
            value = "mac";
        if (strcmp(row->name, "HOROVOD_ALLREDUCE_ALGORITHM") == 0)
            value = "ring";
        if (strcmp(row->name, "HOROVOD_CMA") == 0)
            value = "1";
        if (strcmp(row->name, "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS") == 0)
            value = "77"; /* less is ignored */
        f->count = 0;
        set(f, row->name, value);
        load_well(f);
        if (f->warning_count > 0)
            assert_non_null(strstr(f->warnings[0], "is accepted but has no effect here: "));
        char text[64];
        config_format(&f->config, row, text, sizeof text);
        assert_string_equal(text, is_switch && !is_on ? "1" : row->is_secret ? "(secret)" : value);
        assert_memory_not_equal((char *)&f->config + row->offset, (char *)&plain + row->offset,
                                row->bytes);
        memcpy((char *)&f->config + row->offset, (char *)&plain + row->offset, row->bytes);
        assert_memory_equal(&f->config, &plain, sizeof plain);
    }
}

static void rows_are_sound(void **state)
{
    (void)state;
    static bool is_covered[sizeof(struct config)];
    for (size_t i = 0; i < setting_count; i++) {
        const struct setting *row = &setting_rows[i];
        if (!setting_is_config(row))
            continue;
        assert_int_equal(strncmp(row->name, "HOROVOD_", 8), 0);
        assert_true(strlen(row->name) < 64);
        assert_true(strlen(row->help) > 0);
        for (size_t j = 0; j < i; j++)
            assert_true(setting_rows[j].name == NULL ||
                        strcmp(row->name, setting_rows[j].name) != 0);
        assert_true(row->offset + row->bytes <= sizeof(struct config));
        memset(is_covered + row->offset, 1, row->bytes);
        size_t expected = row->type == TYPE_INT || row->type == TYPE_FLOAT ? 8
                          : row->type == TYPE_LEVEL                        ? sizeof(enum log_level)
                          : row->type == TYPE_TEXT                         ? row->bytes
                                                                           : sizeof(bool);
        assert_int_equal(row->bytes, expected);
    }
    size_t gap = 0; /* only padding may be left over: a field without a row would show */
    for (size_t i = 0; i < sizeof(struct config); i++) {
        gap = is_covered[i] ? 0 : gap + 1;
        assert_true(gap < 8);
    }
}

static void switches(void **state)
{
    struct fixture *f = *state;
    SET(f, "HOROVOD_PLAN_DISABLE=2", "HOROVOD_SHM_DISABLE=-1", "HOROVOD_DYNAMIC_PROCESS_SETS=-1",
        "HOROVOD_ELASTIC=0", "HOROVOD_STALL_CHECK_DISABLE=true", "HOROVOD_LOG_HIDE_TIME=");
    load_well(f);
    assert_true(f->config.plan_disable);
    assert_false(f->config.shm_disable);
    assert_true(f->config.dynamic_process_sets);
    assert_false(f->config.elastic);
    assert_false(f->config.stall_check_disable); /* as the contract has it, but it is told */
    assert_false(f->config.log_hide_time);
    assert_int_equal(f->warning_count, 1);
    assert_non_null(strstr(f->warnings[0], "HOROVOD_STALL_CHECK_DISABLE=true"));
    f->count = 0;
    set(f, "HOROVOD_AUTOTUNE", "0yes");
    load_well(f);
    assert_int_equal(f->warning_count, 1);
    assert_non_null(strstr(f->warnings[0], "is not a number and counts as 0 (off); use 1 or 0"));
}

static void malformed_numbers_are_errors(void **state)
{
    struct fixture *f = *state;
    static const char *const bad[] = {"64mb", "x", "1.5", "99999999999999999999", "- 1", "0x10"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        f->count = 0;
        set(f, "HOROVOD_FUSION_THRESHOLD", bad[i]);
        f->config.rank = 1234;
        assert_int_equal(load(f), HVD_ERR_CONFIG);
        assert_non_null(strstr(f->error.text, "HOROVOD_FUSION_THRESHOLD"));
        assert_non_null(strstr(f->error.text, bad[i]));
        assert_int_equal(f->config.rank, 1234); /* written only on success */
    }
}

static void floats(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *text;
        double value;
    } good[] = {{"0.1", 0.1}, {"2", 2},       {" 3.5 ", 3.5}, {".5", 0.5},
                {"1e2", 100}, {"25e-1", 2.5}, {"5.", 5},      {"+1", 1}};
    static const char *const bad[] = {"",    ".",   "e5",  "1e",    "1,5",
                                      "nan", "inf", "1 2", "1e999", "-"};
    (void)setlocale(LC_ALL, "de_DE.UTF-8"); /* where there is one, it must not matter */
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        f->count = 0;
        set(f, "HOROVOD_CYCLE_TIME", good[i].text);
        load_well(f);
        assert_true(f->config.cycle_time_ms == good[i].value);
    }
    for (size_t i = 1; i < sizeof bad / sizeof bad[0]; i++) {
        f->count = 0;
        set(f, "HOROVOD_CYCLE_TIME", bad[i]);
        assert_int_equal(load(f), HVD_ERR_CONFIG);
        assert_non_null(strstr(f->error.text, "HOROVOD_CYCLE_TIME"));
    }
    (void)setlocale(LC_ALL, "C");
}

static void too_small_is_told(void **state)
{
    struct fixture *f = *state;
    set(f, "HOROVOD_CACHE_CAPACITY", "-5");
    set(f, "HOROVOD_CYCLE_TIME", "-1");
    set(f, "HOROVOD_SPIN_US", "-1");
    load_well(f);
    assert_int_equal(f->config.cache_capacity, 0);
    assert_true(f->config.cycle_time_ms == 0);
    assert_int_equal(f->config.spin_us, -1);
    assert_int_equal(f->warning_count, 2);
}

static const char *first_warning(struct fixture *f, const char *name, const char *value)
{
    f->count = 0;
    set(f, name, value);
    load_well(f);
    assert_int_equal(f->warning_count, 1);
    return f->warnings[0];
}

static void too_large_is_told(void **state)
{
    struct fixture *f = *state;
    assert_string_equal(first_warning(f, "HOROVOD_TCP_FLOWS", "5000"),
                        "HOROVOD_TCP_FLOWS=5000 is too large (allowed: 1 to 32) and counts as 32");
    assert_int_equal(f->config.tcp_flows, 32);
    assert_string_equal(first_warning(f, "HOROVOD_TCP_FLOWS", "0"),
                        "HOROVOD_TCP_FLOWS=0 is too small (allowed: 1 to 32) and counts as 1");
    assert_int_equal(f->config.tcp_flows, 1);
    assert_non_null(strstr(first_warning(f, "HOROVOD_CYCLE_TIME", "1e30"), "too large"));
    assert_true(f->config.cycle_time_ms == 3600000);
    assert_non_null(
        strstr(first_warning(f, "HOROVOD_GLOO_TIMEOUT_SECONDS", "99999999999"), "too large"));
    assert_true(f->config.timeout_s * 1000000000 > 0);
}

/* The limits of every number: both are taken as they are, one beyond is told or refused. */
static void every_limit_holds(void **state)
{
    struct fixture *f = *state;
    for (size_t i = 0; i < setting_count; i++) {
        const struct setting *row = &setting_rows[i];
        if (!setting_is_config(row))
            continue;
        if (row->type != TYPE_INT)
            continue;
        assert_true(row->highest > row->lowest);
        for (int side = 0; side < 4; side++) {
            static const int beyond[] = {0, -1, 0, 1};
            int64_t limit = side < 2 ? row->lowest : row->highest;
            char text[32];
            (void)snprintf(text, sizeof text, "%lld", (long long)(limit + beyond[side]));
            f->count = 0;
            set(f, row->name, text);
            hvd_status_t status = load(f);
            bool is_refused = row->is_exact && beyond[side] != 0;
            assert_int_equal(status, is_refused ? HVD_ERR_CONFIG : HVD_OK);
            if (is_refused) {
                assert_non_null(strstr(f->error.text, row->name));
                assert_non_null(strstr(f->error.text, text));
                assert_non_null(strstr(f->error.text, "must be a whole number from "));
                continue;
            }
            int64_t value;
            memcpy(&value, (char *)&f->config + row->offset, sizeof value);
            assert_int_equal(value, limit);
            bool is_told = f->warning_count > 0 && strstr(f->warnings[0], "is too ") != NULL;
            assert_int_equal(is_told, beyond[side] != 0);
        }
    }
}

static void numbers_that_name_something_are_exact(void **state)
{
    struct fixture *f = *state;
    static const char *const bad[][2] = {{"HOROVOD_CMA", "7"},
                                         {"HOROVOD_RANK", "-2"},
                                         {"HOROVOD_SIZE", "-4"},
                                         {"HOROVOD_GLOO_RENDEZVOUS_PORT", "70000"}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        f->count = 0;
        set(f, bad[i][0], bad[i][1]);
        assert_int_equal(load(f), HVD_ERR_CONFIG);
        assert_int_equal(f->warning_count, 0);
    }
}

/* Whatever the page says has no effect gives a warning when it is set, and nothing else does. */
static void settings_without_effect_are_documented(void **state)
{
    struct fixture *f = *state;
    int found = 0;
    for (size_t i = 0; i < setting_count; i++) {
        const struct setting *row = &setting_rows[i];
        if (!setting_is_config(row))
            continue;
        bool is_idle = row->idle != NULL;
        f->count = 0;
        set(f, row->name, is_idle ? "7" : row->fallback);
        load_well(f);
        assert_int_equal(f->warning_count, is_idle ? 1 : 0);
        if (is_idle)
            assert_non_null(strstr(f->warnings[0], row->name));
        found += is_idle;
    }
    assert_int_equal(found, 2);
}

static void settings_without_effect_are_told(void **state)
{
    struct fixture *f = *state;
    assert_non_null(
        strstr(first_warning(f, "HOROVOD_TORUS_ALLREDUCE", "1"), "has no effect here: "));
    f->count = 0;
    set(f, "HOROVOD_AUTOTUNE", "0"); /* off is what it is */
    set(f, "HOROVOD_TORUS_ALLREDUCE", "0");
    load_well(f);
    assert_int_equal(f->warning_count, 0);
}

static void unknown_names_get_the_nearest(void **state)
{
    struct fixture *f = *state;
    SET(f, "HOROVOD_FUSION_TRESHOLD=1", "HOROVOD_TIMELINES=1",
        "HOROVOD_SOMETHING_ELSE_ENTIRELY_DIFFERENT=1", "HOROVOD_=1");
    load_well(f);
    assert_int_equal(f->warning_count, 4);
    assert_string_equal(f->warnings[0], "unknown setting HOROVOD_FUSION_TRESHOLD is ignored; "
                                        "did you mean HOROVOD_FUSION_THRESHOLD?");
    assert_non_null(strstr(f->warnings[1], "did you mean HOROVOD_TIMELINE?"));
    assert_null(strstr(f->warnings[2], "did you mean"));
    assert_int_equal(config_load(&f->os, &f->config, NULL, NULL, NULL), HVD_OK);
}

static void known_elsewhere_is_silent(void **state)
{
    struct fixture *f = *state;
    SET(f, "HOROVOD_START_TIMEOUT=30", "HOROVOD_SPARK_WORK_DIR=/x", "HOROVOD_WITH_PYTORCH=1",
        "HOROVOD_WITHOUT_MPI=1", "HOROVOD_NCCL_HOME=/x", "HOROVOD_GPU_OPERATIONS=NCCL",
        "_HOROVOD_SECRET_KEY=x");
    load_well(f);
    assert_int_equal(f->warning_count, 0);
    set(f, "HOROVOD_NUM_NCCL_STREAMS", "2");
    load_well(f);
    assert_int_equal(f->warning_count, 1);
    assert_string_equal(f->warnings[0],
                        "HOROVOD_NUM_NCCL_STREAMS is accepted but has no effect here");
}

static void levels(void **state)
{
    struct fixture *f = *state;
    set(f, "HOROVOD_LOG_LEVEL", "DEBUG");
    load_well(f);
    assert_int_equal(f->config.log_level, LOG_DEBUG);
    f->count = 0;
    set(f, "HOROVOD_LOG_LEVEL", "loud");
    load_well(f);
    assert_int_equal(f->config.log_level, LOG_WARNING);
    assert_int_equal(f->warning_count, 1);
}

static void choices_are_checked(void **state)
{
    struct fixture *f = *state;
    set(f, "HOROVOD_CONTROLLER", "MPI");
    set(f, "HOROVOD_CPU_OPERATIONS", "Gloo");
    load_well(f);
    assert_string_equal(f->config.controller, "mpi");
    assert_string_equal(f->config.cpu_operations, "gloo");
    f->count = 0;
    set(f, "HOROVOD_CONTROLLER", "nccl");
    assert_int_equal(load(f), HVD_ERR_CONFIG);
    assert_non_null(
        strstr(f->error.text, "Unsupported controller type, only MPI and Gloo are supported"));
    f->count = 0;
    set(f, "HOROVOD_SECURITY", "none");
    assert_int_equal(load(f), HVD_ERR_CONFIG);
    f->count = 0;
    set(f, "HOROVOD_ALLREDUCE_ALGORITHM", "rign");
    assert_int_equal(load(f), HVD_ERR_CONFIG);
    assert_non_null(strstr(f->error.text, "(HOROVOD_ALLREDUCE_ALGORITHM=rign)"));
    /* The words are select.c's. What can't be forced is refused, with those that can. */
    static const bool is_forcible[SCHEDULE_ALGORITHM_COUNT] = {[SCHEDULE_AUTO] = true,
                                                               [SCHEDULE_RECURSIVE_DOUBLING] = true,
                                                               [SCHEDULE_RABENSEIFNER] = true,
                                                               [SCHEDULE_RING] = true,
                                                               [SCHEDULE_DOUBLE_TREE] = true};
    for (int i = 0; i < SCHEDULE_ALGORITHM_COUNT; i++) {
        const char *name = schedule_algorithm_name((enum schedule_algorithm)i);
        f->count = 0;
        set(f, "HOROVOD_ALLREDUCE_ALGORITHM", name);
        if (is_forcible[i]) {
            load_well(f);
            continue;
        }
        assert_int_equal(load(f), HVD_ERR_CONFIG);
        assert_non_null(strstr(f->error.text, name));
        for (int k = 0; k < SCHEDULE_ALGORITHM_COUNT; k++)
            if (is_forcible[k])
                assert_non_null(
                    strstr(f->error.text, schedule_algorithm_name((enum schedule_algorithm)k)));
    }
}

static void texts_have_limits(void **state)
{
    struct fixture *f = *state;
    char text[CONFIG_TEXT_MAX + 1];
    memset(text, 'x', sizeof text);
    text[CONFIG_TEXT_MAX - 1] = '\0';
    set(f, "HOROVOD_TIMELINE", text);
    load_well(f);
    assert_string_equal(f->config.timeline, text);
    memset(text, 'x', sizeof text);
    text[CONFIG_TEXT_MAX] = '\0';
    f->count = 0;
    set(f, "HOROVOD_TIMELINE", text);
    assert_int_equal(load(f), HVD_ERR_CONFIG);
    assert_non_null(strstr(f->error.text, "too long"));
}

static void later_row_of_a_field_wins(void **state)
{
    struct fixture *f = *state;
    set(f, "HOROVOD_INTERFACES", "eth0,eth1");
    set(f, "HOROVOD_GLOO_IFACE", "lo");
    load_well(f);
    assert_string_equal(f->config.interfaces, "eth0,eth1");
    f->count = 0;
    set(f, "HOROVOD_GLOO_IFACE", "lo");
    load_well(f);
    assert_string_equal(f->config.interfaces, "lo");
}

static void xla_takes_the_cycle_away(void **state)
{
    struct fixture *f = *state;
    set(f, "HOROVOD_ENABLE_XLA_OPS", "1");
    load_well(f);
    assert_true(f->config.cycle_time_ms == 0);
    set(f, "HOROVOD_CYCLE_TIME", "2.5");
    load_well(f);
    assert_true(f->config.cycle_time_ms == 2.5);
}

static void key_is_wiped_and_not_printed(void **state)
{
    struct fixture *f = *state;
    set(f, "HOROVOD_KEY", "00112233");
    set(f, "HOROVOD_RANK", "bad");
    assert_int_equal(load(f), HVD_ERR_CONFIG);
    assert_true(config_is_set(&f->os, "HOROVOD_KEY")); /* nothing was taken */
    f->count = 1;
    load_well(f);
    assert_string_equal(f->config.key, "00112233");
    assert_false(config_is_set(&f->os, "HOROVOD_KEY"));
    for (size_t i = 0; i < setting_count; i++) {
        char text[CONFIG_TEXT_MAX];
        if (!setting_is_config(&setting_rows[i]))
            continue;
        config_format(&f->config, &setting_rows[i], text, sizeof text);
        assert_null(strstr(text, "00112233"));
    }
    char secret[200];
    memset(secret, 'a', sizeof secret - 1);
    secret[sizeof secret - 1] = '\0';
    f->count = 0;
    set(f, "HOROVOD_KEY", secret);
    assert_int_equal(load(f), HVD_ERR_CONFIG);
    assert_null(strstr(f->error.text, "aaaa"));
}

static void format_gives_back_what_was_read(void **state)
{
    struct fixture *f = *state;
    load_well(f);
    for (size_t i = 0; i < setting_count; i++) {
        char text[64];
        if (!setting_is_config(&setting_rows[i]))
            continue;
        config_format(&f->config, &setting_rows[i], text, sizeof text);
        assert_string_equal(text, setting_rows[i].fallback);
    }
}

static void is_set_needs_a_value(void **state)
{
    struct fixture *f = *state;
    set(f, "HOROVOD_RANK", "0");
    set(f, "HOROVOD_SIZE", "");
    assert_true(config_is_set(&f->os, "HOROVOD_RANK"));
    assert_false(config_is_set(&f->os, "HOROVOD_SIZE"));
    assert_false(config_is_set(&f->os, "HOROVOD_LOCAL_RANK"));
}

/* Nothing ends the job before it was reported. */
static void stall_limits(void **state)
{
    struct fixture *f = *state;
    set(f, "HOROVOD_STALL_CHECK_TIME_SECONDS", "3600");
    load_well(f);
    assert_int_equal(f->config.stall_shutdown_time_s, 3600);
    assert_int_equal(f->warning_count, 0);
    set(f, "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "1800");
    load_well(f);
    assert_int_equal(f->config.stall_shutdown_time_s, 0);
    assert_int_equal(f->warning_count, 1);
    assert_non_null(strstr(f->warnings[0], "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=1800"));
    f->count = 0;
    set(f, "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "0");
    load_well(f);
    assert_int_equal(f->config.stall_shutdown_time_s, 0);
    assert_int_equal(f->warning_count, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(defaults),
        TEST(every_row_reaches_its_field),
        TEST(rows_are_sound),
        TEST(switches),
        TEST(malformed_numbers_are_errors),
        TEST(floats),
        TEST(too_small_is_told),
        TEST(too_large_is_told),
        TEST(every_limit_holds),
        TEST(numbers_that_name_something_are_exact),
        TEST(settings_without_effect_are_told),
        TEST(settings_without_effect_are_documented),
        TEST(unknown_names_get_the_nearest),
        TEST(known_elsewhere_is_silent),
        TEST(levels),
        TEST(choices_are_checked),
        TEST(texts_have_limits),
        TEST(later_row_of_a_field_wins),
        TEST(xla_takes_the_cycle_away),
        TEST(stall_limits),
        TEST(key_is_wiped_and_not_printed),
        TEST(format_gives_back_what_was_read),
        TEST(is_set_needs_a_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
