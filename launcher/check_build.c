/* SPDX-License-Identifier: Apache-2.0 */
/* check_build.c - see check_build.h. Asks the Python that users would run (the one beside this
 * program, else the first python3 in the PATH) where the packages are, without importing any
 * framework: a framework counts if it is installed and the horovod package there has a binding for
 * it. Controllers and operations are asked of the core library in that package.
 * Thread: one.  Blocks: for the question, a fraction of a second.
 * Start reading at check_build_run(). */
#include "check_build.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "horovod/hvd.h"
#include "spawn.h"

#define ANSWER_MAX 4096

/* Prints `name<TAB>found<TAB>version<TAB>binding` for each framework, the same for each thing that
 * the core says it has, and `transport` or `backend<TAB>usable<TAB>name<TAB>why not` for each row
 * of its tables (hvd_probe()). */
static const char question[] =
    "import importlib.util as u, importlib.metadata as m, os, sys, ctypes, glob\n"
    "def spec(n):\n"
    "    try:\n"
    "        return u.find_spec(n)\n"
    "    except Exception:\n"
    "        return None\n"
    "def version(*names):\n"
    "    for n in names:\n"
    "        try:\n"
    "            return m.version(n)\n"
    "        except Exception:\n"
    "            pass\n"
    "    return '?'\n"
    "h = spec('horovod')\n"
    "roots = list(h.submodule_search_locations or []) if h else []\n"
    "print('python\\t1\\t%s\\t%s' % (sys.version.split()[0], sys.executable))\n"
    "print('horovod\\t%d\\t%s\\t%s' % (bool(roots), version('horovod'), ''.join(roots[:1])))\n"
    "for name, dists in (('tensorflow', ('tensorflow', 'tensorflow-cpu')), ('torch', ('torch',)),\n"
    "                    ('mxnet', ('mxnet', 'mxnet-cu112')), ('jax', ('jax',)), ('keras', "
    "('keras',))):\n"
    "    s = spec(name)\n"
    "    b = any(os.path.isdir(os.path.join(r, name)) for r in roots)\n"
    "    print('%s\\t%d\\t%s\\t%d' % (name, bool(s and s.origin), version(*dists) if s else '-', "
    "b))\n"
    "for r in roots:\n"
    "    for f in glob.glob(os.path.join(r, 'lib*', 'libhorovod.so*')) + glob.glob(os.path.join(r, "
    "'libhorovod.so*')) + glob.glob(os.path.join(r, '_native*.so')):\n"
    "        try:\n"
    "            lib = ctypes.CDLL(f)\n"
    "        except OSError as e:\n"
    "            print('broken\\t0\\t%s\\t0' % str(e).replace('\\n', ' '))\n"
    "            continue\n"
    "        print('core\\t1\\t-\\t%s' % f)\n"
    "        for q in ('mpi', 'gloo', 'nccl', 'ddl', 'ccl'):\n"
    "            try:\n"
    "                f = getattr(lib, 'horovod_%s_built' % q)\n"
    "                f.restype = ctypes.c_bool\n"
    "                if f():\n"
    "                    print('built-%s\\t1\\t-\\t1' % q)\n"
    "            except AttributeError:\n"
    "                pass\n"
    "        class P(ctypes.Structure):\n"
    "            _fields_ = [('size', ctypes.c_size_t), ('kind', ctypes.c_char * 16),\n"
    "                        ('name', ctypes.c_char * 16), ('why', ctypes.c_char * 256),\n"
    "                        ('usable', ctypes.c_bool)]\n"
    "        if hasattr(lib, 'hvd_probe'):\n"
    "            lib.hvd_probe.restype = ctypes.c_bool\n"
    "            p, i = P(size=ctypes.sizeof(P)), 0\n"
    "            while lib.hvd_probe(ctypes.c_int32(i), ctypes.byref(p)):\n"
    "                text = [v.decode(errors='replace') for v in (p.kind, p.name, p.why)]\n"
    "                why = ' '.join(text[2].split()) or '-'\n"
    "                print('%s\\t%d\\t%s\\t%s' % (text[0], p.usable, text[1], why))\n"
    "                i += 1\n"
    "        break\n";

struct answer {
    bool has_python, has_package, has_core;
    bool tensorflow, torch, mxnet;
    bool mpi, gloo, nccl, ddl, ccl;
    struct list lines;
};

/* The interpreter of the environment this program was installed into wins. */
static char *python_path(struct mem *m, const struct os *os)
{
    char *self = spawn_self_path(m);
    char *slash = strrchr(self, '/');
    if (slash != NULL) {
        *slash = '\0';
        char *beside = mem_format(m, "%s/python3", self);
        if (access(beside, X_OK) == 0)
            return beside;
    }
    const char *venv = os->env(os->ctx, "VIRTUAL_ENV");
    char *inside = mem_format(m, "%s/bin/python3", venv == NULL ? "" : venv);
    if (venv != NULL && access(inside, X_OK) == 0)
        return inside;
    return mem_copy(m, "python3");
}

/* The script goes in by stdin, so that no quoting is needed and -I keeps the directory out. */
static void ask(struct mem *m, const struct os *os, struct answer *ret)
{
    int in[2], out[2], pidfd = -1;
    pid_t pid = 0;
    if (spawn_pipe(in) != 0)
        return;
    if (spawn_pipe(out) != 0) {
        close(in[0]);
        close(in[1]);
        return;
    }
    spawn_ignore_broken_pipes(); /* an interpreter may end without reading */
    char *argv[] = {python_path(m, os), (char *)"-", NULL};
    struct spawn s = {.argv = argv, .fds = {in[0], out[1], -1}, .kept_fd = -1};
    int rc = spawn_start(&s, &pid, &pidfd);
    close(in[0]);
    close(out[1]);
    if (rc == 0)
        (void)!write(in[1], question, sizeof question - 1);
    close(in[1]);
    FILE *file = rc == 0 ? fdopen(out[0], "r") : NULL;
    char line[ANSWER_MAX];
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        list_add(m, &ret->lines, mem_copy(m, line));
    }
    if (file != NULL)
        fclose(file);
    else
        close(out[0]);
    struct spawn_end end;
    while (rc == 0 && !spawn_reap(pid, &end) && spawn_has_children())
        os->sleep_ns(os->ctx, 1000000);
    if (pidfd >= 0)
        close(pidfd);
}

static void understand(struct answer *a)
{
    for (size_t i = 0; i < a->lines.count; i++) {
        char name[64] = "", version[256] = "", extra[2048] = "";
        int found = 0;
        if (sscanf(a->lines.items[i], "%63[^\t]\t%d\t%255[^\t]\t%2047[^\n]", name, &found, version,
                   extra) < 2)
            continue;
        bool has_binding = strcmp(extra, "1") == 0;
        bool *const flags[] = {&a->tensorflow, &a->torch, &a->mxnet, &a->mpi,
                               &a->gloo,       &a->nccl,  &a->ddl,   &a->ccl};
        static const char *const names[] = {"tensorflow", "torch",      "mxnet",     "built-mpi",
                                            "built-gloo", "built-nccl", "built-ddl", "built-ccl"};
        for (size_t k = 0; k < sizeof names / sizeof *names; k++)
            if (strcmp(name, names[k]) == 0)
                *flags[k] = found != 0 && has_binding;
        a->has_python |= strcmp(name, "python") == 0;
        a->has_package |= strcmp(name, "horovod") == 0 && found != 0;
        a->has_core |= strcmp(name, "core") == 0 && found != 0;
    }
    a->tensorflow = a->tensorflow && a->has_core;
    a->torch = a->torch && a->has_core;
    a->mxnet = a->mxnet && a->has_core;
}

static bool is_row(const char *name)
{
    return strcmp(name, "transport") == 0 || strcmp(name, "backend") == 0;
}

/* "    tcp: usable", "    mpi: not usable. No MPI library was found." Without the [X] of 0.28.1's
 * lines, which scripts count. */
static void print_rows(const struct answer *a, const char *kind)
{
    for (size_t i = 0; i < a->lines.count; i++) {
        char what[64] = "", name[256] = "", why[2048] = "";
        int is_usable = 0;
        if (sscanf(a->lines.items[i], "%63[^\t]\t%d\t%255[^\t]\t%2047[^\n]", what, &is_usable, name,
                   why) == 4 &&
            strcmp(what, kind) == 0)
            printf("    %s: %s%s\n", name, is_usable ? "usable" : "not usable. ",
                   is_usable ? "" : why);
    }
    putchar('\n');
}

static void print_checks(const struct answer *a)
{
    const struct {
        const char *name;
        bool is_built;
    } rows[] = {{"tensorflow", a->tensorflow}, {"torch", a->torch}, {"mxnet", a->mxnet}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        printf("Checking whether extension %s was built.\nExtension %s was %sbuilt.\n",
               rows[i].name, rows[i].name, rows[i].is_built ? "" : "NOT ");
    for (size_t i = 0; i < a->lines.count; i++) {
        char name[64] = "", version[256] = "", extra[2048] = "";
        int found = 0;
        if (sscanf(a->lines.items[i], "%63[^\t]\t%d\t%255[^\t]\t%2047[^\n]", name, &found, version,
                   extra) == 4 &&
            strncmp(name, "built-", 6) != 0 && !is_row(name))
            printf("Found: %s %s %s %s\n", name, found ? "yes" : "no", version,
                   strlen(extra) > 1 ? extra : "");
    }
    if (!a->has_python)
        printf("No python3 could be asked.\n");
    else if (!a->has_package)
        printf("This Python has no horovod package.\n");
    else if (!a->has_core)
        printf("The horovod package there has no core library that loads.\n");
    putchar('\n');
}

int check_build_run(struct mem *m, const struct os *os, const struct args *args)
{
    struct answer a = {0};
    ask(m, os, &a);
    understand(&a);
    if (args->verbose)
        print_checks(&a);
#define MARK(flag) ((flag) ? 'X' : ' ')
    printf("Horovod v%s:\n\n"
           "Available Frameworks:\n"
           "    [%c] TensorFlow\n    [%c] PyTorch\n    [%c] MXNet\n\n"
           "Available Controllers:\n"
           "    [%c] MPI\n    [%c] Gloo\n\n",
           HVD_VERSION_STRING, MARK(a.tensorflow), MARK(a.torch), MARK(a.mxnet), MARK(a.mpi),
           MARK(a.gloo));
    if (a.has_core) {
        printf("Available Transports:\n");
        print_rows(&a, "transport");
        printf("Available Backends:\n");
        print_rows(&a, "backend");
    }
    printf("Available Tensor Operations:\n"
           "    [%c] NCCL\n    [%c] DDL\n    [%c] CCL\n    [%c] MPI\n    [%c] Gloo    \n",
           MARK(a.nccl), MARK(a.ddl), MARK(a.ccl), MARK(a.mpi), MARK(a.gloo));
#undef MARK
    return 0;
}
