#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fail where code reaches the system other than through `struct os`, or ends the process.

    check_calls.py                            what text shows: kernel files, headers, pages
    check_calls.py --objects BUILD [--nm NM]  what the linker sees: names that object files need

Tests fail the k-th call and the simulator runs many engines in virtual time because everything goes
through one table; a short cut breaks both silently. So each object file may need only names of our
own code, names of the C library that do not touch the system (PURE), and what its row in ALLOWED
lists with a reason. Object files can't be fooled by spelling: a call by macro, by a function
pointer or by an inline function of a header needs its name, too.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Object libraries of the build and the folder that their sources lie in.
TARGETS = ("horovod_objects", "horovod_sim", "horovod_launcher", "horovodrun")

# ---- what object files may need ----

# Of the C library: computes on memory, formats text, or locks within this process.
PURE = """
    memchr memcmp memcpy memmem memmove memset stpcpy strcasecmp strcat strchr strcmp strcpy strcspn
    strlen strncasecmp strncmp strnlen strpbrk strrchr strspn strstr strtod strtol strtoll strtoul
    strtoull qsort snprintf vsnprintf sscanf strerror strerror_r bcmp
    isalnum isalpha isdigit isspace toupper tolower
    inet_ntop inet_pton in6addr_any in6addr_loopback
    pthread_mutex_init pthread_mutex_destroy pthread_mutex_lock pthread_mutex_trylock
    pthread_mutex_unlock pthread_once
    sqrt sqrtf fmin fmax floor ceil ldexp
"""
# What compilers put in: stack protector, thread locals, assertions, arithmetic, instruction sets.
COMPILER = re.compile(
    r"_GLOBAL_OFFSET_TABLE_|__stack_chk_(fail|guard)|__tls_get_addr|__assert_(fail|rtn)|__cpu_model"
    r"|__cpu_indicator_init|__ctype_\w+_loc|__errno_location|__(u?div|u?mod|mul|ash|lsh|float|fix|ext"
    r"end|trunc|aarch64_)\w+|_?_?DefaultRuneLocale|__(gcov|asan|ubsan|tsan)_\w+"
)

PRINT = "fflush fprintf fputc fputs fwrite printf putc putchar puts stderr stdout vfprintf vprintf"
CLOCK = "localtime_r strftime"  # the time zone
HOST = "gethostname uname"

ANY = object()
# By file or, ending in a slash, by folder.
ALLOWED = {
    # The doors: these fill the table.
    "src/base/os_linux.c": ANY,
    "src/base/fork_linux.c": ANY,
    "src/base/net_linux.c": ANY,
    # They only ask the loader and the processor, which no test could want to fail.
    "src/base/library_linux.c": "dladdr dl_iterate_phdr getauxval",
    "src/base/cpu_linux.c": "getauxval",
    "src/base/log.c": CLOCK,
    # A handler can't have the table; it rings a bell.
    "src/base/signal_linux.c": "sigaction sigemptyset write",
    # The one instance of a process: what happens when it forks and when it exits.
    "src/api/instance.c": "pthread_atfork atexit",
    # The launcher is one program, and its tests run real ones. It talks to its terminal as programs
    # do; each of its files may further call only this.
    "launcher/": PRINT,
    # The door of processes: starting, watching, signals, pipes, limits, its own files.
    "launcher/spawn.c": ANY,
    "launcher/agent.c": HOST,
    "launcher/locality.c": HOST,
    "launcher/mem.c": "write _exit",  # out of memory: one line and the end
    "launcher/output.c": f"poll fstat mkdir {CLOCK}",  # terminals and files of ranks' output
    "launcher/probe.c": "poll shutdown",
    "launcher/check_build.c": "access close fclose fdopen fgets write",  # asks Python
    "launcher/mpi.c": "execve exit fread pclose popen",  # asks mpirun, then becomes it
    "launcher/jsrun.c": "fread pclose popen",
    "launcher/print_config.c": "putenv",
    "launcher/dashboard.c": "dashboard_page dashboard_page_bytes",  # made by cmake/embed.cmake
    "launcher/status.c": "getpid",
    "launcher/status_client.c": "ferror isatty",  # a table for a terminal
    "launcher/supervise.c": "getpid kill",  # stops itself at Ctrl-Z
}


def names_allowed(source):
    allowed = set()
    for place in (source, source.split("/")[0] + "/"):
        names = ALLOWED.get(place, "")
        if names is ANY:
            return ANY
        allowed |= set(names.split())
    return allowed


def plain(name):
    """lstat of __lstat64, snprintf of __snprintf_chk, strtol of __isoc23_strtol."""
    for pattern in (
        r"__(\w+)_chk",
        r"__isoc\d\d_(\w+)",
        r"__(open|openat)(?:64)?_2",
        r"__xpg_(\w+)",
    ):
        match = re.fullmatch(pattern, name)
        if match:
            name = match.group(1)
    return re.sub(r"^(_*)(\w*?[a-z])64$", r"\2", name)


def objects_of(build):
    """(object file, source) of each source that still exists; a build keeps old objects."""
    for target in TARGETS:
        folder = build / "CMakeFiles" / f"{target}.dir"
        for path in sorted(folder.rglob("*.o")):
            source = str(path.relative_to(folder))[: -len(".o")]
            if (ROOT / source).exists():
                yield path, source


def symbols_of(nm, objects):
    """Names that the files define together, and the names that each needs."""
    command = [nm, "-P", "-A", *(str(path) for path, _ in objects)]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    defined, needed = set(), {str(path): set() for path, _ in objects}
    for line in output.splitlines():
        path, _, rest = line.partition(": ")
        name, kind = rest.split()[:2]
        name = name.split("@")[0]
        if kind in "Uwv":
            needed[path].add(name)
        elif kind.isupper():
            defined.add(name)
    return defined, needed


def check_objects(build, nm):
    objects = list(objects_of(build))
    if not objects:
        print(f"calls: no object files in {build}", file=sys.stderr)
        return None, []
    defined, needed = symbols_of(nm, objects)
    pure = set(PURE.split())
    problems = []
    for path, source in objects:
        allowed = names_allowed(source)
        if allowed is ANY:
            continue
        for name in sorted(needed[str(path)] - defined):
            if COMPILER.fullmatch(name) or plain(name) in pure or plain(name) in allowed:
                continue
            problems.append(f"{source}: {plain(name)}: use struct os (or see tools/check_calls.py)")
    return len(objects), problems


# ---- what only text shows ----

# Files that may know Linux; launcher/spawn.c is the launcher's own.
PLATFORM = re.compile(r"_linux\.[ch]$|^launcher/spawn\.c$")
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
LINUX_HEADERS = r"linux/|link\.h|sys/(?:auxv|epoll|eventfd|inotify|prctl|syscall)\.h"
PAGE = r"\b\w*PAGE\w*\s+\(?(?:4096|4u?\s*<<\s*10)|/\s*4096u?\s*\*\s*4096"
LINUX_ONLY = (
    (re.compile(r'"/(?:proc|sys)\b'), "a kernel file: src/base/machine.h, proc.h"),
    (re.compile(r"\bsockaddr_un\b|\bsun_path\b"), "a local socket's name: src/base/socket.h"),
    (re.compile(r"\bSO_PEERCRED\b|\bTCP_USER_TIMEOUT\b|\bIP_MTU\b"), "src/base/socket.h"),
    (re.compile(rf"#\s*include\s*<(?:{LINUX_HEADERS})"), "a header of Linux"),
    (re.compile(r"\b__linux__\b"), "a platform is a file, not an #if"),
    (re.compile(PAGE), "a page size: os->page_bytes()"),
)


def check_text(path):
    name = str(path.relative_to(ROOT))
    if PLATFORM.search(name):
        return
    text = COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), path.read_text("utf-8"))
    for pattern, advice in LINUX_ONLY:
        for match in pattern.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            yield f"{name}:{line}: {match.group().strip()}: {advice}"


def check_texts():
    files = sorted(
        path
        for folder in ("src", "sim", "launcher")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".c", ".h", ".inc")
    )
    return len(files), [problem for path in files for problem in check_text(path)]


def report(check, looked_at, count, problems):
    """Prints what a check found; its exit code: 1 also if there was nothing to look at."""
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{check}: {looked_at}, {len(problems)} problems")
    return 1 if problems or not count else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--objects", metavar="BUILD", type=Path, help="a folder that was built in")
    parser.add_argument("--nm", default="nm")
    arguments = parser.parse_args()
    if arguments.objects is not None:
        count, problems = check_objects(arguments.objects, arguments.nm)
    else:
        count, problems = check_texts()
    return report("calls", f"{count or 0} files", count, problems)


if __name__ == "__main__":
    sys.exit(main())
