# SPDX-License-Identifier: Apache-2.0
"""The config file's reader reads what it takes as PyYAML does, which read it in 0.28.1.

The answers of PyYAML 6.0.3 are written down here, so that the test needs no PyYAML; where there is
one, they are compared with it. What the reader refuses is in test_files.py.
"""

import pytest

# Text, and what PyYAML makes of it.
CORPUS = [
    ("timeline:\n  filename: a\n", {"timeline": {"filename": "a"}}),
    ("timeline: {filename: a}\n", {"timeline": {"filename": "a"}}),
    ("timeline: {filename: 'a, b', mark_cycles: yes}\n",
     {"timeline": {"filename": "a, b", "mark_cycles": True}}),
    ("timeline: { filename : a b , }\n", {"timeline": {"filename": "a b"}}),
    ("timeline:\n    filename: a b c   # why\n", {"timeline": {"filename": "a b c"}}),
    ("timeline:\n  filename: 'it''s'\n", {"timeline": {"filename": "it's"}}),
    ('timeline:\n  filename: "a\\tb\\\\c\\"d\\u00e9\\x41"\n',
     {"timeline": {"filename": 'a\tb\\c"déA'}}),
    ("timeline:\n  filename: x#y\n", {"timeline": {"filename": "x#y"}}),
    ("timeline:\n  filename: http://h:1/p?q=1\n", {"timeline": {"filename": "http://h:1/p?q=1"}}),
    ("timeline:\n  filename: a'b\"c\n", {"timeline": {"filename": "a'b\"c"}}),
    ("timeline:\n  filename: '# no comment'\n", {"timeline": {"filename": "# no comment"}}),
    ("timeline:\n  filename: -x\n", {"timeline": {"filename": "-x"}}),
    ("timeline:\n  filename: é.json\n", {"timeline": {"filename": "é.json"}}),
    ("---\n# c\n\ntimeline:\n\n  # c\n  filename: a\n...\n", {"timeline": {"filename": "a"}}),
    ("\ufefftimeline:\r\n  filename: a\r\n", {"timeline": {"filename": "a"}}),
    ('"timeline":\n  "filename": a\n', {"timeline": {"filename": "a"}}),
    ("timeline:\n  filename: ~\n", {"timeline": {"filename": None}}),
    ("timeline:\n  filename:\n", {"timeline": {"filename": None}}),
    ("timeline:\n  filename: Null\n", {"timeline": {"filename": None}}),
    ("timeline:\nparams:\n  cache_capacity: 7\n",
     {"timeline": None, "params": {"cache_capacity": 7}}),
    ("params:\n  cache_capacity: 0x10\n", {"params": {"cache_capacity": 16}}),
    ("params:\n  cache_capacity: 010\n", {"params": {"cache_capacity": 8}}),
    ("params:\n  cache_capacity: +5\n", {"params": {"cache_capacity": 5}}),
    ("params:\n  cache_capacity: 1_000\n", {"params": {"cache_capacity": 1000}}),
    ("params:\n  cache_capacity: 0b101\n", {"params": {"cache_capacity": 5}}),
    ("params:\n  cycle_time_ms: 3\n", {"params": {"cycle_time_ms": 3}}),
    ("params:\n  cycle_time_ms: 3.50\n", {"params": {"cycle_time_ms": 3.5}}),
    ("params:\n  cycle_time_ms: .5\n", {"params": {"cycle_time_ms": 0.5}}),
    ("params:\n  cycle_time_ms: 1.5e+2\n", {"params": {"cycle_time_ms": 150.0}}),
    *[(f"params: {{hierarchical_allreduce: {word}}}", {"params": {"hierarchical_allreduce": True}})
      for word in ("true", "True", "TRUE", "yes", "Yes", "on", "ON")],
    *[(f"params: {{hierarchical_allreduce: {word}}}", {"params": {"hierarchical_allreduce": False}})
      for word in ("false", "False", "no", "No", "off", "Off")],
    ("", None),
    ("# nothing\n", None),
]  # fmt: skip

NAMES = {
    "filename": "HOROVOD_TIMELINE",
    "mark_cycles": "HOROVOD_TIMELINE_MARK_CYCLES",
    "cache_capacity": "HOROVOD_CACHE_CAPACITY",
    "cycle_time_ms": "HOROVOD_CYCLE_TIME",
    "hierarchical_allreduce": "HOROVOD_HIERARCHICAL_ALLREDUCE",
}


def expected(content):
    """The variables that 0.28.1 set for what PyYAML gave it."""
    found = {}
    for section in (content or {}).values():
        for key, value in (section or {}).items():
            if isinstance(value, bool):
                value = int(value)
            if key == "cycle_time_ms":
                value = float(value)
            if value is not None:
                found[NAMES[key]] = str(value)
    return found


@pytest.mark.parametrize("text,content", CORPUS, ids=[repr(text) for text, _ in CORPUS])
def test_reads_as_pyyaml_does(run, tmp_path, text, content):
    (tmp_path / "c.yaml").write_bytes(text.encode())
    result = run("-np", 1, "--config-file", "c.yaml", "env", "-0", text=False)
    assert result.returncode == 0, result.stderr
    assert result.stderr == b""
    given = result.stdout.decode().replace("[0]<stdout>:", "").split("\0")
    env = dict(item.split("=", 1) for item in given if "=" in item)
    assert {n: env[n] for n in NAMES.values() if n in env} == expected(content)


def test_corpus_is_what_pyyaml_says():
    yaml = pytest.importorskip("yaml")
    for text, content in CORPUS:
        assert yaml.safe_load(text) == content, text
