"""What a fact is, and how many of them two captions or two scenes differ in.

Facts of a claim: per phrase its category, and if stated its colour, size, action and quantity (other than "a"); each
stated relation; the setting if stated. Facts of a scene: per thing kind, colour, size, place, and action if it has one;
the setting. Noise is no fact.
"""

from collections.abc import Iterator
from itertools import combinations, permutations

from repair.world.claims import Claim, Phrase
from repair.world.scenes import Scene, Thing

PHRASE_FACTS = ("quantity", "size", "colour", "category", "action")
THING_FACTS = ("kind", "colour", "size", "action", "place")


def phrase_distance(a: Phrase, b: Phrase) -> int:
    """In how many facts two mentions differ; stated against unsaid is a difference."""
    return sum(getattr(a, name) != getattr(b, name) for name in PHRASE_FACTS)


def n_stated(phrase: Phrase) -> int:
    """The facts of one mention, all of which go when it is dropped."""
    return 1 + (phrase.quantity != "a") + sum(fact is not None for fact in (phrase.colour, phrase.size, phrase.action))


def n_told(claim: Claim) -> int:
    """The facts of a claim."""
    links = sum(relation is not None for relation in claim.relations)
    return sum(map(n_stated, claim.phrases)) + links + (claim.setting is not None)


def caption_distance(a: Claim, b: Claim) -> int:
    """The fewest facts to change, drop or add to get from `a` to `b`.

    The least over all order-preserving partial matchings of phrases: matched phrases count the facts they differ in,
    the others all their facts; a relation is kept only between two neighbours that stay neighbours.
    """
    setting = int(a.setting != b.setting)
    return setting + min(_matched_distance(a, b, match) for match in _ordered_matchings(len(a.phrases), len(b.phrases)))


def thing_distance(a: Thing, b: Thing) -> int:
    """In how many facts two things differ."""
    return sum(getattr(a, name) != getattr(b, name) for name in THING_FACTS)


def n_facts(thing: Thing) -> int:
    """The facts that come or go with a whole thing."""
    return len(THING_FACTS) - (thing.action is None)


def scene_distance(a: Scene, b: Scene) -> int:
    """The fewest facts to change, drop or add to get from `a` to `b`: least over all partial matchings of things."""
    few, many = sorted((a.things, b.things), key=len)
    # Two things differ in at most five facts and to drop one and add the other takes eight or more, so a matching that
    # leaves out a thing of the scene with fewer is never the least.
    costs = [[thing_distance(f, m) - n_facts(m) for m in many] for f in few]
    best = min(
        sum(row[m] for row, m in zip(costs, chosen, strict=True)) for chosen in permutations(range(len(many)), len(few))
    )
    return best + sum(map(n_facts, many)) + (a.setting != b.setting)


def _ordered_matchings(n: int, m: int) -> Iterator[tuple[tuple[int, int], ...]]:
    for k in range(min(n, m) + 1):
        for left in combinations(range(n), k):
            for right in combinations(range(m), k):
                yield tuple(zip(left, right, strict=True))


def _matched_distance(a: Claim, b: Claim, match: tuple[tuple[int, int], ...]) -> int:
    to_b = dict(match)
    kept_b = set(to_b.values())
    cost = sum(phrase_distance(a.phrases[i], b.phrases[j]) for i, j in match)
    cost += sum(n_stated(phrase) for i, phrase in enumerate(a.phrases) if i not in to_b)
    cost += sum(n_stated(phrase) for j, phrase in enumerate(b.phrases) if j not in kept_b)
    compared = set()
    for i, relation in enumerate(a.relations):
        j = to_b.get(i)
        if j is not None and to_b.get(i + 1) == j + 1:
            compared.add(j)
            cost += relation != b.relations[j]
        else:
            cost += relation is not None
    return cost + sum(relation is not None for j, relation in enumerate(b.relations) if j not in compared)
