"""Compare teachers, votes and mechanisms with common implementations; the same as `teacher-student benchmark` (see --help)."""

import sys

from research.benchmarks.command import main

if __name__ == "__main__":
    sys.exit(main())
