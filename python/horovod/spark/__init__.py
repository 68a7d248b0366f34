# SPDX-License-Identifier: Apache-2.0
"""Horovod on Spark: run() and run_elastic() start ranks in Spark tasks; estimators train models.

Spark itself is imported when it is needed, not here: ranks import this package, too.
"""

from horovod.spark import conf
from horovod.spark.runner import run, run_elastic

__all__ = ["conf", "run", "run_elastic"]
