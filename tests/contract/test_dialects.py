"""One store over two databases: the same verbs, with the same parameters."""

from importlib.resources import files

import pytest

from holdfast.stores import queries
from holdfast.stores.sqlite.verbs import VERBS

POSTGRES = {
    verb: frozenset(queries.parameters(sql))
    for verb, sql in queries.load(files("holdfast.stores.postgres")).items()
}


def test_both_databases_know_the_same_verbs():
    assert POSTGRES.keys() == VERBS.keys()


@pytest.mark.parametrize("verb", POSTGRES)
def test_a_verb_takes_the_same_parameters_on_both_databases(verb):
    assert POSTGRES[verb] == VERBS[verb].parameters
