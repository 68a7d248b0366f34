#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fail where the core reaches the system other than through `struct os`, or ends the process.

Only src/base/*_linux.c, which fill the table, may call the system. That is what lets tests fail the
k-th call and the simulator run many engines in virtual time, so a short cut breaks them silently.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

FORBIDDEN = {
    "environment": "getenv secure_getenv setenv putenv unsetenv",
    "memory": "malloc calloc realloc aligned_alloc posix_memalign free strdup strndup asprintf "
    "vasprintf mmap munmap memfd_create shm_open",
    "threads": "pthread_create pthread_cancel fork vfork execve posix_spawn system popen",
    "time": "clock_gettime gettimeofday time sleep usleep nanosleep",
    "random": "rand random srand srandom getrandom rand_r drand48",
    "files and sockets": "open openat fopen socket connect accept accept4 bind listen send recv "
    "sendmsg recvmsg poll epoll_wait epoll_create1 select pidfd_open",
    "output": "printf fprintf vfprintf puts fputs perror",
    "the process's end": "abort exit _exit quick_exit raise",
    "raw calls": "syscall",
}
KIND_OF = {name: kind for kind, names in FORBIDDEN.items() for name in names.split()}

IGNORED = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
# A member of a table (os->open, .open) is not the system's; nor is a declaration's own name.
CALL = re.compile(r"(?<![\w.>])({})\s*\(".format("|".join(sorted(KIND_OF))))


def blank(match):
    return re.sub(r"[^\n]", " ", match.group())


def check_file(path):
    text = IGNORED.sub(blank, path.read_text(encoding="utf-8"))
    for match in CALL.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        name = match.group(1)
        yield f"{path.relative_to(ROOT)}:{line}: {name}() ({KIND_OF[name]}): use struct os"


def main():
    doors = set((ROOT / "src/base").glob("*_linux.c"))
    files = sorted(
        path for path in (ROOT / "src").rglob("*") if path.suffix in (".c", ".h", ".inc")
    )
    files = [path for path in files if path not in doors]
    problems = [problem for path in files for problem in check_file(path)]
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"calls: {len(files)} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
