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

/* What a file says, and what is read from it; NULL: not compared. */
struct reading {
    const char *text, *where, *inner, *inside, *frames;
    bool is_inside;
};

static const struct reading readings[] = {
    {"Thread 0x1 (most recent call first):\n"
     "  File \"/lib/python3/threading.py\", line 355 in wait\n"
     "\n"
     "Current thread 0x2 (most recent call first):\n"
     "  File \"/lib/site-packages/horovod/common/handles.py\", line 3 in synchronize\n"
     "  File \"/lib/site-packages/torch/x.py\", line 5 in call\n"
     "  File \"/home/me/train.py\", line 88 in step\n"
     "  File \"/home/me/train.py\", line 99 in <module>\n",
     "train.py:88 in step", "handles.py:3 in synchronize", "train.py:88 in step", NULL, true},
    /* Another thread waits in Horovod. */
    {"Thread 0x1 (most recent call first):\n"
     "  File \"/lib/site-packages/horovod/common/handles.py\", line 3 in f\n"
     "  File \"/home/me/worker.py\", line 7 in run\n"
     "\n"
     "Thread 0x2 (most recent call first):\n"
     "  File \"/lib/python3/queue.py\", line 9 in get\n"
     "  File \"/home/me/load.py\", line 12 in fetch\n",
     "load.py:12 in fetch", "queue.py:9 in get", "worker.py:7 in run",
     "File \"/lib/python3/queue.py\", line 9 in get\n"
     "File \"/home/me/load.py\", line 12 in fetch\n",
     false},
    /* A callback that Horovod calls is the user's place; that Horovod is around it does not count.
     */
    {"Current thread 0x2 (most recent call first):\n"
     "  File \"/home/me/hook.py\", line 4 in hook\n"
     "  File \"/lib/site-packages/horovod/torch/x.py\", line 3 in f\n"
     "  File \"/home/me/train.py\", line 88 in step\n",
     "hook.py:4 in hook", "", NULL, NULL, false},
    /* Bytes that a terminal would obey, and a file that ends in the middle. */
    {"Thread 0x2 (most recent call first):\n"
     "  <no Python frame>\n"
     "  File \"/home/me/tr\033[2Jain.py\", line 8 in st\033ep\n"
     "  File \"/home/me/half",
     "tr [2Jain.py:8 in st ep", NULL, NULL, NULL, false},
};

static void assert_reads(const char *got, const char *want)
{
    if (want != NULL)
        assert_string_equal(got, want);
}

static void stacks(void **state)
{
    struct stack_head head = head_of(HEAD);
    (void)state;
    for (size_t i = 0; i < sizeof readings / sizeof readings[0]; i++) {
        const struct reading *r = &readings[i];
        struct stack stack;
        assert_true(stack_read(&head, r->text, strlen(r->text), &stack));
        assert_reads(stack.where, r->where);
        assert_reads(stack.inner, r->inner);
        assert_reads(stack.inside, r->inside);
        assert_reads(stack.frames, r->frames);
        assert_int_equal(stack.is_inside, r->is_inside);
    }
}

static void no_stack(void **state)
{
    struct stack_head head = head_of(HEAD);
    struct stack stack;
    (void)state;
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
        cmocka_unit_test(header),   cmocka_unit_test(header_that_is_none), cmocka_unit_test(stacks),
        cmocka_unit_test(no_stack), cmocka_unit_test(deep_stack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
