"""The examples in the docstrings of the model files, run as they stand."""

import doctest

import pytest

from minibert import configuration_minibert, modeling_minibert

HEADS = [name for name in modeling_minibert.__all__ if name != "MiniBertPreTrainedModel"]


def run_examples(owner, module) -> doctest.TestResults:
    (test,) = doctest.DocTestFinder(recurse=False).find(owner, module=module, globs={})
    return doctest.DocTestRunner().run(test)


@pytest.mark.parametrize("name", HEADS)
def test_every_head_has_an_example_that_runs(name):
    results = run_examples(getattr(modeling_minibert, name), modeling_minibert)
    assert results.attempted > 3 and results.failed == 0


def test_the_config_has_an_example_that_runs():
    results = run_examples(configuration_minibert.MiniBertConfig, configuration_minibert)
    assert results.attempted > 3 and results.failed == 0
