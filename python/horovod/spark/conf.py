# SPDX-License-Identifier: Apache-2.0
"""Spark settings for elastic jobs, as (name, value): `SparkConf().setAll([...])`.

They say how often Spark restarts a failed task, and where. Spark 3.1 renamed `spark.blacklist.*` to
`spark.excludeOnFailure.*` and still reads the old names, which all versions know.
"""

SPARK_CONF_MAX_INT = "2147483647"
SPARK_CONF_MAX_INT_MINUS_ONE = "2147483646"

_BLACKLIST = "spark.blacklist"
_TASK_EXECUTOR = f"{_BLACKLIST}.task.maxTaskAttemptsPerExecutor"
_TASK_NODE = f"{_BLACKLIST}.task.maxTaskAttemptsPerNode"
_STAGE_EXECUTOR = f"{_BLACKLIST}.stage.maxFailedTasksPerExecutor"
_STAGE_NODE = f"{_BLACKLIST}.stage.maxFailedExecutorsPerNode"
_APP_EXECUTOR = f"{_BLACKLIST}.application.maxFailedTasksPerExecutor"
_APP_NODE = f"{_BLACKLIST}.application.maxFailedExecutorsPerNode"

# Restart a failed task again and again.
SPARK_CONF_ALWAYS_RESTART_FAILED_TASK = ("spark.task.maxFailures", SPARK_CONF_MAX_INT)

# Does Spark avoid executors and nodes on which tasks have failed? The settings below need it on.
SPARK_CONF_BLACKLIST_DISABLED = (f"{_BLACKLIST}.enabled", "false")
SPARK_CONF_BLACKLIST_ENABLED = (f"{_BLACKLIST}.enabled", "true")

# May a task be restarted on an executor, or a node, on which it has failed?
SPARK_CONF_REUSE_EXECUTOR_ALWAYS_FOR_SAME_TASK = (_TASK_EXECUTOR, SPARK_CONF_MAX_INT)
SPARK_CONF_DONT_REUSE_EXECUTOR_FOR_SAME_TASK = (_TASK_EXECUTOR, "1")
SPARK_CONF_REUSE_NODE_ALWAYS_FOR_SAME_TASK = (_TASK_NODE, SPARK_CONF_MAX_INT)
SPARK_CONF_DONT_REUSE_NODE_FOR_SAME_TASK = (_TASK_NODE, "1")

# May other tasks of the stage use an executor, or a node, on which tasks have failed?
SPARK_CONF_REUSE_FAILED_EXECUTOR = (_STAGE_EXECUTOR, SPARK_CONF_MAX_INT)
SPARK_CONF_DONT_REUSE_FAILED_EXECUTOR = (_STAGE_EXECUTOR, "1")
SPARK_CONF_REUSE_FAILED_NODE = (_STAGE_NODE, SPARK_CONF_MAX_INT)
SPARK_CONF_DONT_REUSE_FAILED_NODE = (_STAGE_NODE, "1")

# The same for the whole application.
SPARK_CONF_REUSE_FAILED_EXECUTOR_IN_APP = (_APP_EXECUTOR, SPARK_CONF_MAX_INT)
SPARK_CONF_DONT_REUSE_FAILED_EXECUTOR_IN_APP = (_APP_EXECUTOR, "1")
SPARK_CONF_REUSE_FAILED_NODE_IN_APP = (_APP_NODE, SPARK_CONF_MAX_INT)
SPARK_CONF_DONT_REUSE_FAILED_NODE_IN_APP = (_APP_NODE, "1")

SPARK_CONF_DEFAULT_VALUES = {
    "spark.task.maxFailures": "4",
    f"{_BLACKLIST}.enabled": "false",
    _TASK_EXECUTOR: "1",
    _TASK_NODE: "2",
    _STAGE_EXECUTOR: "2",
    _STAGE_NODE: "2",
    _APP_EXECUTOR: "2",
    _APP_NODE: "2",
}
