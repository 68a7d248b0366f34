# SPDX-License-Identifier: Apache-2.0
"""One rank of horovod.run(): read the call from a folder, make it, leave the result there."""

import os
import sys
from pathlib import Path

import cloudpickle


def main(folder):
    func, args, kwargs = cloudpickle.loads((Path(folder) / "call").read_bytes())
    result = func(*args, **kwargs)
    rank = os.environ.get("HOROVOD_RANK", "0")
    (Path(folder) / f"result.{rank}").write_bytes(cloudpickle.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1])
