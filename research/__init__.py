"""Studies around the package, kept in the source tree and out of the wheel: no user of `teacher_student` calls them.

| module | what |
|---|---|
| `theory` | the paper's theorems as functions, estimators of their assumptions, and experiments beside them |
| `benchmarks` | what `teacher-student benchmark` measures, and DP-SGD as a peer |
| `subsample_aggregate`, `soft_label_queries` | the paper's algorithms in one piece, from shards to answers |
| `data_dependent` | the data-dependent bound of PATE 2018: a diagnostic, not releasable |
| `record_voters` | every record votes on the public points nearest to it: voters of local votes, not yet a learner of runs |

A checkout that is installed in editable mode (`uv sync`, `uv run`, `pip install -e .`) can import it; a wheel does not have it.
"""
