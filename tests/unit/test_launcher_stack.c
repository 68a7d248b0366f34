/* SPDX-License-Identifier: Apache-2.0 */
/* test_launcher_stack.c - the file in which a rank writes its Python stacks: its header, frames of
 * libraries and of the user, several threads, and bytes that are none of these. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../../launcher/stack.c"

#define HEAD                                                                                       \
    "pid 4711\nsignal 46\nskip /lib/site-packages/horovod/\nskip /lib/python3/\n"                  \
    "skip /lib/site-packages/\nready\n"

static struct stack_head head_of(const char *text)
{
    struct stack_head head;
    assert_true(stack_head_read(text, strlen(text), &head));
    return head;
}

static bool is_head(const char *text)
{
    struct stack_head head;
    return stack_head_read(text, strlen(text), &head);
}

static void header(void **state)
{
    struct stack_head head = head_of(HEAD "Thread 0x1 (most recent call first):\n");
    (void)state;
    assert_int_equal(head.pid, 4711);
    assert_int_equal(head.signal, 46);
    assert_int_equal(head.skip_count, 3);
    assert_int_equal(head.bytes, strlen(HEAD));
    assert_string_equal(head.skips[1], "/lib/python3/");
}

static void header_that_is_none(void **state)
{
    (void)state;
    assert_false(is_head(""));
    assert_false(is_head("pid 4711\nsignal 46\n"));        /* not complete */
    assert_false(is_head("pid 4711\nsignal 46\nready"));   /* nor this one */
    assert_false(is_head("pid 4711\nsignal 9\nready\n"));  /* would kill it */
    assert_false(is_head("pid 4711\nsignal 65\nready\n")); /* there is none */
    assert_false(is_head("pid 1\nsignal 46\nready\n"));
    assert_false(is_head("pid -5\nsignal 46\nready\n"));
    assert_false(is_head("signal 46\nready\n"));
}

static void rank_that_waits(void **state)
{
    const char *text = "Thread 0x1 (most recent call first):\n"
                       "  File \"/lib/python3/threading.py\", line 355 in wait\n"
                       "\n"
                       "Current thread 0x2 (most recent call first):\n"
                       "  File \"/lib/site-packages/horovod/common/handles.py\", line 3 in "
                       "synchronize\n"
                       "  File \"/lib/site-packages/torch/x.py\", line 5 in call\n"
                       "  File \"/home/me/train.py\", line 88 in step\n"
                       "  File \"/home/me/train.py\", line 99 in <module>\n";
    struct stack_head head = head_of(HEAD);
    struct stack stack;
    (void)state;
    assert_true(stack_read(&head, text, strlen(text), &stack));
    assert_string_equal(stack.where, "train.py:88 in step");
    assert_string_equal(stack.inside, "train.py:88 in step");
    assert_string_equal(stack.inner, "handles.py:3 in synchronize");
    assert_true(stack.is_inside);
}

static void other_thread_waits(void **state)
{
    const char *text = "Thread 0x1 (most recent call first):\n"
                       "  File \"/lib/site-packages/horovod/common/handles.py\", line 3 in f\n"
                       "  File \"/home/me/worker.py\", line 7 in run\n"
                       "\n"
                       "Thread 0x2 (most recent call first):\n"
                       "  File \"/lib/python3/queue.py\", line 9 in get\n"
                       "  File \"/home/me/load.py\", line 12 in fetch\n";
    struct stack_head head = head_of(HEAD);
    struct stack stack;
    (void)state;
    assert_true(stack_read(&head, text, strlen(text), &stack));
    assert_string_equal(stack.where, "load.py:12 in fetch");
    assert_string_equal(stack.inner, "queue.py:9 in get");
    assert_string_equal(stack.inside, "worker.py:7 in run");
    assert_false(stack.is_inside);
    assert_string_equal(stack.frames, "File \"/lib/python3/queue.py\", line 9 in get\n"
                                      "File \"/home/me/load.py\", line 12 in fetch\n");
}

/* A callback that Horovod calls is the user's place; that Horovod is around it does not count. */
static void user_code_inside_of_horovod(void **state)
{
    const char *text = "Current thread 0x2 (most recent call first):\n"
                       "  File \"/home/me/hook.py\", line 4 in hook\n"
                       "  File \"/lib/site-packages/horovod/torch/x.py\", line 3 in f\n"
                       "  File \"/home/me/train.py\", line 88 in step\n";
    struct stack_head head = head_of(HEAD);
    struct stack stack;
    (void)state;
    assert_true(stack_read(&head, text, strlen(text), &stack));
    assert_string_equal(stack.where, "hook.py:4 in hook");
    assert_string_equal(stack.inner, "");
    assert_false(stack.is_inside);
}

static void odd_bytes(void **state)
{
    const char *text = "Thread 0x2 (most recent call first):\n"
                       "  <no Python frame>\n"
                       "  File \"/home/me/tr\033[2Jain.py\", line 8 in st\033ep\n"
                       "  File \"/home/me/half";
    struct stack_head head = head_of(HEAD);
    struct stack stack;
    (void)state;
    assert_true(stack_read(&head, text, strlen(text), &stack));
    assert_string_equal(stack.where, "tr [2Jain.py:8 in st ep");
    assert_false(stack_read(&head, "", 0, &stack));
    assert_false(stack_read(&head, "noise\n", 6, &stack));
}

static void deep_stack(void **state)
{
    struct stack_head head = head_of(HEAD);
    struct stack stack;
    static char text[400000];
    size_t used = 0;
    (void)state;
    for (int i = 0; i < 1000; i++)
        used += (size_t)snprintf(text + used, sizeof text - used,
                                 "  File \"/home/%0300d.py\", line %d in f\n", i, i);
    assert_true(stack_read(&head, text, used, &stack));
    assert_true(strlen(stack.frames) < STACK_FRAMES_MAX);
    assert_true(strlen(stack.where) < STACK_WHERE_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(header),
        cmocka_unit_test(header_that_is_none),
        cmocka_unit_test(rank_that_waits),
        cmocka_unit_test(other_thread_waits),
        cmocka_unit_test(user_code_inside_of_horovod),
        cmocka_unit_test(odd_bytes),
        cmocka_unit_test(deep_stack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
