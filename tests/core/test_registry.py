import pytest

from repair.core.errors import ConfigError, MissingDependency
from repair.core.registry import Registry, parse_spec


def make(*, size: int = 1, name: str = "a", seed: int = 0) -> tuple[int, str, int]:
    return size, name, seed


def needs(*, path: str) -> str:
    return path


@pytest.fixture
def registry() -> Registry:
    found = Registry("thing")
    found.add("make", f"{__name__}:make", "makes")
    found.add("needs", f"{__name__}:needs", "needs a path")
    found.add("place", f"{__name__}:needs", "needs a path", argument="path")
    found.add("absent", "package_that_is_not_there.module:factory", "needs a package", extra="towers")
    return found


def test_options_of_the_spec_and_of_the_table(registry: Registry) -> None:
    assert registry.build("make(size=2, name='b')", options={"size": "3"}, seed=9, unused=1) == (3, "b", 9)


def test_what_follows_a_colon_is_one_option(registry: Registry) -> None:
    assert registry.build("place:a/b(c)/d:e") == "a/b(c)/d:e"
    assert registry.require("place:x") == "place"
    for spec, said in {
        "place:": 'write "place:PATH"',
        "make:2": 'write "make"',
        "plaec:x": 'did you mean "place"',
    }.items():
        with pytest.raises(ConfigError, match=said):
            registry.build(spec)
    with pytest.raises(ConfigError, match='needs the option "path": write place:PATH'):
        registry.build("place")


def test_unknown_name_lists_the_choices(registry: Registry) -> None:
    with pytest.raises(ConfigError, match='unknown thing "mak": did you mean "make"'):
        registry.build("mak")


def test_unknown_option_names_the_nearest(registry: Registry) -> None:
    with pytest.raises(ConfigError, match='unknown option "sise" of thing "make": did you mean "size"'):
        registry.build("make", options={"sise": 1})


def test_wrong_type_and_missing_option(registry: Registry) -> None:
    with pytest.raises(ConfigError, match=r'option "size" of thing "make".*not \'many\''):
        registry.build("make", options={"size": "many"})
    with pytest.raises(ConfigError, match='thing "needs" needs the option "path"'):
        registry.build("needs")


def test_what_the_program_provides_cannot_be_set(registry: Registry) -> None:
    with pytest.raises(ConfigError, match='unknown option "seed"'):
        registry.build("make", options={"seed": 1}, seed=0)


def test_a_missing_package_names_the_pip_command(registry: Registry) -> None:
    with pytest.raises(MissingDependency, match=r'pip install "repair-clip\[towers\]"'):
        registry.build("absent")


def test_the_same_name_twice_is_refused(registry: Registry) -> None:
    with pytest.raises(ValueError, match="registered twice"):
        registry.add("make", "x:y", "again")


@pytest.mark.parametrize("spec", ["", "a b", "f(1)", "f(x=g())", "f("])
def test_a_spec_that_cannot_be_read(spec: str) -> None:
    with pytest.raises(ConfigError, match="write name or name"):
        parse_spec(spec)


def test_every_registered_factory_exists() -> None:
    import importlib

    from repair.pipeline.registries import ALL

    targets = [entry.target for found in ALL for entry in found.entries.values()]
    assert len(targets) > 12
    for target in targets:
        module, name = target.split(":")
        assert callable(getattr(importlib.import_module(module), name)), target
