"""Measure teachers, votes and mechanisms against the usual ways; the same as `teacher-student benchmark` (see --help)."""

import sys

from research.benchmarks.command import main

if __name__ == "__main__":
    sys.exit(main())
