import pytest

from repair.core.errors import ConfigError
from repair.core.records import ErrorType
from repair.world.distance import caption_distance
from repair.world.foils import foils
from repair.world.language import parse
from repair.world.source import WorldSource


@pytest.fixture(scope="module")
def source():
    return WorldSource(n_train=0, n_val=0, n_test=60)


@pytest.fixture(scope="module")
def made(source):
    return foils(source, "test", n=10)


def test_every_type_is_there_and_every_foil_is_exact(source, made):
    for error in ErrorType:
        own = [foil for foil in made if foil.error_type is error]
        assert len(own) == 10, error
        assert len({foil.image_id for foil in own}) == 10
        for foil in own:
            image = source.read_image(foil.image_id)
            assert source.holds(image, foil.text)
            assert not source.holds(image, foil.foil)
            assert caption_distance(parse(foil.text), parse(foil.foil)) == 1


def test_the_changed_fact_is_of_the_type(made):
    for foil in made:
        true, false = parse(foil.text), parse(foil.foil)
        facts = {"category": 0, "colour": 0, "size": 0, "action": 0, "quantity": 0}
        for old, new in zip(true.phrases, false.phrases, strict=False):
            for name in facts:
                facts[name] += getattr(old, name) != getattr(new, name)
        changed = {name for name, n in facts.items() if n}
        changed |= {"relation"} if true.relations != false.relations[: len(true.relations)] else set()
        changed |= {"setting"} if true.setting != false.setting else set()
        changed |= {"mention"} if len(true.phrases) != len(false.phrases) else set()
        wanted = {
            ErrorType.OBJECT: {"category"},
            ErrorType.ATTRIBUTE: {"colour", "size", "setting"},
            ErrorType.RELATION: {"relation"},
            ErrorType.ACTION: {"action"},
            ErrorType.COUNT: {"quantity"},
            ErrorType.HALLUCINATION: {"mention"},
        }[foil.error_type]
        assert len(changed) == 1, (foil, changed)
        assert changed <= wanted, (foil, changed)


def test_counterfactuals_swap_the_two_captions(source, made):
    shown = [foil for foil in made if foil.counterfactual is not None]
    assert len(shown) > 25
    for foil in shown:
        assert source.holds(foil.counterfactual, foil.foil)
        assert not source.holds(foil.counterfactual, foil.text)
    assert not any(foil.counterfactual for foil in made if foil.error_type is ErrorType.HALLUCINATION)


def test_same_seed_same_foils_and_more_begin_with_fewer(source, made):
    again = foils(source, "test", n=5, error_types=[ErrorType.COUNT])
    assert again == [foil for foil in made if foil.error_type is ErrorType.COUNT][:5]
    assert foils(source, "test", n=5, seed=1, error_types=[ErrorType.COUNT]) != again
    with pytest.raises(ConfigError, match="n must be at least 1"):
        foils(source, "test", n=0)
