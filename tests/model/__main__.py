"""Walk by seeds, and show the short form of what breaks.

python -m tests.model SEED|FIRST-LAST ...
"""

import sys
import tempfile
from pathlib import Path

from tests.model.promises import Broken
from tests.model.walk import walk
from tests.model.worlds import worlds


def main() -> int:
    """Return 1 when a walk broke a promise."""
    broken = 0
    with tempfile.TemporaryDirectory() as folder, worlds(Path(folder)) as open_world:
        for asked in sys.argv[1:]:
            first, _, last = asked.partition("-")
            for seed in range(int(first), int(last or first) + 1):
                try:
                    walk(seed, open_world)
                except Broken as error:
                    broken += 1
                    sys.stdout.write("\n".join([str(error), *error.__notes__, "", ""]))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
