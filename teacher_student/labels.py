"""The two answers that are not classes. What a release holds per query is a class index, `ABSTAIN` or `HALTED`."""

ABSTAIN = -1
"""A paid non-answer: the teachers did not agree clearly enough, and saying so cost one unit of the cutoff (bottom)."""

HALTED = -2
"""Not asked: the session had already spent its cutoff, so the query cost nothing and says nothing."""
