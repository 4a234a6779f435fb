"""Every worked example in the package's docstrings is run."""

import doctest
import importlib
import importlib.util
import pkgutil

import repair


def test_examples_run():
    n_examples, failed = 0, []
    for module in pkgutil.walk_packages(repair.__path__, "repair."):
        source = importlib.util.find_spec(module.name).loader.get_source(module.name) or ""
        if ">>>" not in source:
            continue
        result = doctest.testmod(importlib.import_module(module.name))
        n_examples += result.attempted
        if result.failed:
            failed.append(module.name)
    assert failed == []
    assert n_examples > 30
