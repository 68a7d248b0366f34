# SPDX-License-Identifier: Apache-2.0
"""The settings of Horovod and the options of horovodrun, as the library knows them.

There is one table, src/base/settings.def, and the library describes it (hvd_settings_json() in
hvd.h). Each row is a dict; the keys are the fields of `struct setting` in src/base/settings.h.
"""

import functools
import json


@functools.cache
def rows():
    """All rows, in the table's order."""
    from horovod.common.library import native

    return tuple(json.loads(native.settings_json()))


def by_name(name):
    """The row of an environment variable; None if there is no such setting."""
    return next((row for row in rows() if row["name"] == name), None)


def of_parser():
    """Rows that are options of the Python parser, too."""
    return [row for row in rows() if row["dest"] and row["flags"]]


def passed_on():
    """Rows whose option becomes a variable of the workers."""
    return [row for row in of_parser() if row["name"] and row["scope"] != "launcher"]


def is_switch(row):
    return row["option_type"] in ("switch", "nonzero")


def variable_text(row, value):
    """What the variable holds for the option's value."""
    if is_switch(row):
        return "1" if bool(value) != row["variable_inverted"] else "0"
    return str(value * row["option_scale"]) if row["option_scale"] != 1 else str(value)


def lowest(row):
    """Options may be 0 where the variable must not: the library then says what it makes of it."""
    return min(row["lowest"], 0)
