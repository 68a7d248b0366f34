/* SPDX-License-Identifier: Apache-2.0 */
/* test_launcher_args.c - the option table and its parser, floats as Python prints them, and the
 * environment variables that the options set. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* Both have a bad_value(). */
#include "../../launcher/args.c"
#define bad_value knobs_bad_value
#include "../../launcher/knobs.c"
#include "../../launcher/mem.c"
#include "../../launcher/yaml.c"

#include "launcher_mem.h"

static struct args args;

/* Words separated by single blanks. */
static hvd_status_t parse(const char *line)
{
    struct list words = {0};
    list_add(&mem, &words, mem_copy(&mem, "horovodrun"));
    while (*line != '\0') {
        size_t n = strcspn(line, " ");
        list_add(&mem, &words, mem_copy_n(&mem, line, n));
        line += n + (line[n] == ' ');
    }
    error_clear(&error);
    return args_parse(&mem, (int)words.count, words.items, &args, &error);
}

static void test_every_spelling_is_found(void **state)
{
    (void)state;
    struct option o = {0};
    size_t count = 0;
    for (; option_next(&o); count++)
        for (int k = 0; k < 2 && o.flag->names[k] != NULL; k++) {
            struct option found = {0};
            const char *value = NULL;
            assert_int_equal(option_find(&mem, o.flag->names[k], &found, &value, &error), HVD_OK);
            assert_ptr_equal(found.flag, o.flag);
            assert_null(value);
        }
    assert_true(count > 60);
}

static void test_every_long_option_by_prefix(void **state)
{
    (void)state;
    struct option o = {0};
    while (option_next(&o))
        for (int k = 0; k < 2 && o.flag->names[k] != NULL; k++) {
            char name[64];
            struct option found = {0};
            const char *value = NULL;
            snprintf(name, sizeof name, "%s", o.flag->names[k]);
            size_t n = strlen(name);
            if (n < 5 || name[1] != '-' || strcmp(name, "--network-interfaces") == 0)
                continue; /* its beginning is another option's whole name */
            name[n - 1] = '\0';
            hvd_status_t status = option_find(&mem, name, &found, &value, &error);
            error_clear(&error);
            assert_true(status != HVD_OK || found.flag == o.flag);
        }
    assert_int_equal(parse("--slots 4 -np 1"), HVD_OK);
    assert_int_equal(args.slots_per_host.value, 4);
}

static void test_values(void **state)
{
    (void)state;
    assert_int_equal(parse("-np 4 -p22 -i key --hosts=a:4 --cycle-time-ms 2.5 python x.py -np 9"),
                     HVD_OK);
    assert_int_equal(args.num_proc.value, 4);
    assert_int_equal(args.ssh_port.value, 22);
    assert_string_equal(args.ssh_identity_file, "key");
    assert_string_equal(args.hosts, "a:4");
    assert_true(args.settings[ROW_cycle_time_ms].real == 2.5);
    assert_string_equal(args.command[0], "python");
    assert_string_equal(args.command[3], "9");
    assert_int_equal(parse("--blacklist-cooldown-range 3 9 -np -1"), HVD_OK);
    assert_int_equal(args.cooldown_low_s.value, 3);
    assert_int_equal(args.cooldown_high_s.value, 9);
    assert_int_equal(args.num_proc.value, -1);
    assert_int_equal(parse("--network-interfaces a,b --network-interface c --network-interface a"),
                     HVD_OK);
    assert_int_equal(args.interfaces.count, 3);
    assert_int_equal(parse("--network-interface a,b"), HVD_OK);
    assert_int_equal(args.warnings.count, 1);
    assert_int_equal(parse("--mpi-args=-x --log-level debug"), HVD_OK);
    assert_string_equal(args.mpi_args, "-x");
    assert_string_equal(args.settings[ROW_log_level].text, "DEBUG");
}

static void test_defaults_are_unset(void **state)
{
    (void)state;
    struct list env = {0};
    assert_int_equal(parse(""), HVD_OK);
    knobs_export(&mem, &args, &env);
    assert_int_equal(env.count, 0);
    assert_null(args.command);
    assert_false(args_is_elastic(&args));
}

static void test_errors(void **state)
{
    (void)state;
    static const struct {
        const char *line, *text;
    } rows[] = {{"-np", "argument -np/--num-proc: expected one argument"},
                {"-np --verbose", "argument -np/--num-proc: expected one argument"},
                {"-np 4x", "argument -np/--num-proc: invalid int value: '4x'"},
                {"-np 99999999999999999999", "argument -np/--num-proc: invalid int value"},
                {"--mpi-args -x", "argument --mpi-args: expected one argument"},
                {"--auto", "ambiguous option: --auto could match --autotune"},
                {"--zzz", "unrecognized arguments: --zzz"},
                {"-z", "unrecognized arguments: -z"},
                {"--autotune --no-autotune", "argument --no-autotune: not allowed with argument"},
                {"--tcp=1", "argument --tcp: ignored explicit argument '1'"},
                {"--log-with-timestamp --prefix-output-with-timestamp", "not allowed with"},
                {"-H a:1 --host-discovery-script x", "not allowed with argument -H/--hosts"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(parse(rows[i].line), HVD_ERR_INVALID);
        assert_non_null(strstr(error.text, rows[i].text));
    }
}

static void test_floats(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } rows[] = {{20, "20.0"},
                {0, "0.0"},
                {0.1, "0.1"},
                {3.25, "3.25"},
                {1e15, "1000000000000000.0"},
                {1e16, "1e+16"},
                {1e-4, "0.0001"},
                {1.5e-5, "1.5e-05"},
                {123456.789, "123456.789"},
                {-7, "-7.0"},
                {1.0 / 3, "0.3333333333333333"}};
    char text[32];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        knobs_format_float(rows[i].value, text);
        assert_string_equal(text, rows[i].text);
    }
}

static void test_file_yields_to_command_line(void **state)
{
    (void)state;
    static const char text[] = "params:\n  cycle_time_ms: 3\n  cache_capacity: 5\n"
                               "controller: mpi\n";
    struct list env = {0};
    assert_int_equal(parse("--cycle-time-ms 7 --gloo"), HVD_OK);
    assert_int_equal(knobs_load_file(&mem, "f", text, sizeof text - 1, &args, &error), HVD_OK);
    knobs_export(&mem, &args, &env);
    assert_string_equal(list_get(&env, "HOROVOD_CYCLE_TIME"), "7.0");
    assert_string_equal(list_get(&env, "HOROVOD_CACHE_CAPACITY"), "5");
    assert_true(args.use_gloo && !args.use_mpi);
}

static void test_limits(void **state)
{
    (void)state;
    assert_int_equal(parse("--fusion-threshold-mb 9223372036854775807"), HVD_OK);
    assert_int_equal(knobs_check(&args, &error), HVD_ERR_INVALID);
    assert_int_equal(parse("--stall-check-warning-time-seconds -4"), HVD_OK);
    assert_int_equal(knobs_check(&args, &error), HVD_ERR_INVALID);
    assert_string_equal(error.text, "stall_check_warning_time_seconds=-4 must be >= 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_spelling_is_found),
                                       cmocka_unit_test(test_every_long_option_by_prefix),
                                       cmocka_unit_test(test_values),
                                       cmocka_unit_test(test_defaults_are_unset),
                                       cmocka_unit_test(test_errors),
                                       cmocka_unit_test(test_floats),
                                       cmocka_unit_test(test_file_yields_to_command_line),
                                       cmocka_unit_test(test_limits)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
