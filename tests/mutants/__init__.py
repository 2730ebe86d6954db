"""Each predicate of each guarded statement is taken out in turn; a test must notice.

`make mutants`, or `python -m tests.mutants settle` for those whose name contains a word.
"""
