"""What `teacher-student benchmark` measures: ratios against the usual ways, interleaved in one run."""
