# SPDX-License-Identifier: Apache-2.0
"""tools/check_calls.py --objects: a system call is found however it is spelt."""

import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
COMPILER = shutil.which("cc") or shutil.which("gcc")
pytestmark = pytest.mark.skipif(
    COMPILER is None or shutil.which("nm") is None, reason="needs a C compiler and nm"
)


@pytest.fixture
def check():
    spec = importlib.util.spec_from_file_location("check_calls", ROOT / "tools/check_calls.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def problems_of(check, folder, source, text, *flags):
    """What is said about this text if it were the object of that source file."""
    target = folder / "CMakeFiles" / "horovod_objects.dir" / source
    target.parent.mkdir(parents=True)
    written = folder / "text.c"
    written.write_text(text)
    subprocess.run([COMPILER, *flags, "-c", written, "-o", f"{target}.o"], check=True)
    return check.check_objects(folder, "nm")[1]


CASES = {
    "lstat": '#include <sys/stat.h>\nint f(struct stat *s) { return lstat("x", s); }',
    "rename": "#include <stdio.h>\nint (*f(void))(const char *, const char *) { return rename; }",
    "mkdir": '#include <sys/stat.h>\n#define MAKE(x) mk##x("x", 0)\n'
    "int f(void) { return MAKE(dir); }",
    "getaddrinfo": "#include <netdb.h>\n#include <stddef.h>\nint f(struct addrinfo **r) "
    "{ return (getaddrinfo)(NULL, NULL, NULL, r); }",
    "sysconf": "#include <unistd.h>\nlong f(void) { return sysconf(_SC_PAGESIZE); }",
    "environ": "extern char **environ;\nchar *f(void) { return environ[0]; }",
    "read": "#include <unistd.h>\nlong f(char *p, long n) { char b[8]; "
    "(void)p; long k = read(0, b, (unsigned long)n); return k + b[0]; }",
    "malloc": "#include <stdlib.h>\nvoid *f(void) { return malloc(8); }",
    "fprintf": '#include <stdio.h>\nvoid f(int n) { fprintf(stderr, "%d", n); }',
}


@pytest.mark.parametrize("name", CASES)
def test_finds(check, tmp_path, name):
    found = problems_of(
        check,
        tmp_path,
        "src/base/map.c",
        CASES[name],
        "-O2",
        "-D_GNU_SOURCE",
        "-D_FORTIFY_SOURCE=2",
    )
    assert any(problem.startswith(f"src/base/map.c: {name}:") for problem in found), found


def test_allows_what_stays_in_memory(check, tmp_path):
    text = "#include <stdio.h>\n#include <string.h>\nint f(char *t, const char *s) { return "
    text += 'snprintf(t, strlen(s), "%s", s); }'
    assert problems_of(check, tmp_path, "src/base/map.c", text, "-O2") == []


def test_allows_by_file(check, tmp_path):
    text = "#include <time.h>\nstruct tm *f(time_t *t, struct tm *r) { return localtime_r(t, r); }"
    assert problems_of(check, tmp_path / "log", "src/base/log.c", text) == []
    assert problems_of(check, tmp_path / "map", "src/base/map.c", text) != []


def test_old_objects_do_not_count(check, tmp_path):
    assert problems_of(check, tmp_path, "src/base/no_such_file.c", CASES["malloc"]) == []


@pytest.mark.parametrize(
    "line",
    [
        'int fd = open("/proc/self/maps");',
        'const char *path = "/sys/fs/cgroup";',
        "struct sockaddr_un un;",
        "#define PAGE 4096u",
        "size_t whole = n / 4096 * 4096;",
        "#include <sys/epoll.h>",
        "#if defined(__linux__)",
    ],
)
def test_text(check, monkeypatch, tmp_path, line):
    monkeypatch.setattr(check, "ROOT", tmp_path)
    for name, is_found in (("thing.c", True), ("thing_linux.c", False)):
        (tmp_path / name).write_text(line + "\n")
        assert bool(list(check.check_text(tmp_path / name))) == is_found
