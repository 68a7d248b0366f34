/* SPDX-License-Identifier: Apache-2.0 */
/* test_launcher_http.c - requests to the dashboard: good ones, every beginning of one, and bytes
 * that are not HTTP; the head of an answer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "../../launcher/http.c"
#include "../../launcher/mem.c"

#define REST " HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nAccept: */*\r\n\r\n"

static struct http_request request;

static int code_of(const char *text)
{
    return http_read(text, strlen(text), &request);
}

static void good(void **state)
{
    (void)state;
    assert_int_equal(code_of("GET /?token=0123abcd" REST), 200);
    assert_string_equal(request.path, "/");
    assert_string_equal(request.token, "0123abcd");
    assert_int_equal(code_of("GET /job.json?a=b&token=x&c HTTP/1.0\r\n\r\n"), 200);
    assert_string_equal(request.path, "/job.json");
    assert_string_equal(request.token, "x");
    assert_int_equal(code_of("GET /job.json?" REST), 200);
    assert_string_equal(request.token, "");
    assert_int_equal(code_of("GET /?xtoken=a&toke=b&token" REST), 200);
    assert_string_equal(request.token, "");
    assert_int_equal(code_of("GET / HTTP/1.1\r\nX:\r\nY: \xc3\xa9\tz\r\n\r\nmore bytes"), 200);
}

static void every_beginning(void **state)
{
    static const char text[] = "GET /job.json?token=0123abcd" REST;
    (void)state;
    for (size_t n = 0; n < sizeof text - 1; n++)
        assert_int_equal(http_read(text, n, &request), HTTP_MORE);
}

static void bad(void **state)
{
    static const struct {
        int code;
        const char *text;
    } cases[] = {
        {400, "\r\n\r\n"},
        {400, "GET\r\n\r\n"},
        {400, "GET \r\n\r\n"},
        {400, "GET /\r\n\r\n"},
        {400, "GET  HTTP/1.1\r\n\r\n"},
        {400, " / HTTP/1.1\r\n\r\n"},
        {400, "GET  / HTTP/1.1\r\n\r\n"},
        {400, "GET / x HTTP/1.1\r\n\r\n"},
        {400, "GET job.json HTTP/1.1\r\n\r\n"},
        {400, "GET http://other/ HTTP/1.1\r\n\r\n"},
        {400, "GET /\x01 HTTP/1.1\r\n\r\n"},
        {400, "GET /?token=\xff HTTP/1.1\r\n\r\n"},
        {400, "GET / HTTP/1.1\nHost: a\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost a\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n: a\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n folded: a\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a\rb\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: \x1b[2J\r\n\r\n"},
        {405, "POST /?token=a" REST},
        {405, "HEAD / HTTP/1.1\r\n\r\n"},
        {405, "get / HTTP/1.1\r\n\r\n"},
        {405, "PRI * HTTP/1.1\r\n\r\n"},
        {505, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
        {505, "GET / HTTP/2.0\r\n\r\n"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (code_of(cases[i].text) != cases[i].code)
            fail_msg("%s: %d", cases[i].text, code_of(cases[i].text));
}

static void bytes_that_are_zero(void **state)
{
    static const char zeros[] = "GET /\0 HTTP/1.1\r\n\r\n",
                      field[] = "GET / HTTP/1.1\r\na:\0\r\n\r\n";
    (void)state;
    assert_int_equal(http_read(zeros, sizeof zeros - 1, &request), 400);
    assert_int_equal(http_read(field, sizeof field - 1, &request), 400);
}

static void limits(void **state)
{
    char text[2 * HTTP_REQUEST_MAX];
    (void)state;
    memset(text, 'a', sizeof text);
    assert_int_equal(http_read(text, HTTP_REQUEST_MAX - 1, &request), HTTP_MORE);
    assert_int_equal(http_read(text, HTTP_REQUEST_MAX, &request), 431);
    memcpy(text + sizeof text - 4, "\r\n\r\n", 4);
    assert_int_equal(http_read(text, sizeof text, &request), 431);

    int n = snprintf(text, sizeof text, "GET /%0*d HTTP/1.1\r\n\r\n", (int)HTTP_PATH_MAX - 2, 0);
    assert_int_equal(http_read(text, (size_t)n, &request), 200);
    assert_int_equal(strlen(request.path), HTTP_PATH_MAX - 1);
    n = snprintf(text, sizeof text, "GET /%0*d HTTP/1.1\r\n\r\n", (int)HTTP_PATH_MAX - 1, 0);
    assert_int_equal(http_read(text, (size_t)n, &request), 414);
    n = snprintf(text, sizeof text, "GET /?token=%0*d HTTP/1.1\r\n\r\n", (int)HTTP_TOKEN_MAX, 0);
    assert_int_equal(http_read(text, (size_t)n, &request), 400);
}

static void answers(void **state)
{
    struct bytes out = {0};
    (void)state;
    http_write(os_host(), &out, 405, "text/plain", "no\n", 3);
    bytes_add(os_host(), &out, "", 1);
    const char *text = (const char *)bytes_at(&out);
    assert_int_equal(strncmp(text, "HTTP/1.1 405 Method Not Allowed\r\n", 33), 0);
    assert_non_null(strstr(text, "\r\nContent-Length: 3\r\n"));
    assert_non_null(strstr(text, "\r\nAllow: GET\r\n"));
    assert_string_equal(strstr(text, "\r\n\r\n"), "\r\n\r\nno\n");
    bytes_free(os_host(), &out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good),   cmocka_unit_test(every_beginning),
        cmocka_unit_test(bad),    cmocka_unit_test(bytes_that_are_zero),
        cmocka_unit_test(limits), cmocka_unit_test(answers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
