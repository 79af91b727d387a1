"""What `teacher-student benchmark` measures: ratios to common implementations, interleaved in one run."""
