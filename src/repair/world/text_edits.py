"""Captions made true of a scene by changing as few facts as possible, found by exhaustive search with bounds.

A phrase can be made true of any thing by replacing the stated facts that are wrong; so the cheapest caption is the
cheapest way to give the phrases disjoint groups of things (or to drop them), counting replaced facts and relations.
Dropping a mention costs all its facts, so it happens only where hardly any of them fits a thing left over.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import combinations, pairwise, product
from types import MappingProxyType

from repair.world.claims import Claim, Phrase, counts, stands
from repair.world.distance import n_stated, phrase_distance
from repair.world.language import parse_said, say
from repair.world.scenes import Scene, Thing
from repair.world.vocabulary import HYPERNYMS, KINDS, QUANTITIES, RELATIONS, actions_of, is_a
from repair.world.wording import Wording

Group = tuple[int, ...]
_MAX_REWRITINGS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class TextEdit:
    """One way to make a caption true. `kept[j]` is the place in the old caption of the new one's phrase j."""

    claim: Claim
    kept: tuple[int, ...]
    cost: int  # facts changed
    rank: tuple[int, int, int]  # order among equal costs: mentions dropped, nouns changed, facts dropped


@dataclass(frozen=True, slots=True)
class _Option:
    """One group of things a phrase could be made to speak of, at least cost, in every such rewriting.

    No group and no rewriting: the mention is dropped.
    """

    cost: int
    group: Group
    phrases: tuple[Phrase, ...]


def minimal_text_edits(scene: Scene, text: str, n: int) -> list[str]:
    """Up to `n` distinct captions, each true of `scene`, that change the fewest facts of `text`.

    `[text]` itself, if it is already true. Words of unchanged facts stay. In order: fewest mentions dropped, fewest
    nouns changed, fewest facts dropped, then the order of things and words. Raises DataError if `text` does not parse.
    """
    said = parse_said(text)
    edits = minimal_edits(scene, said.claim)
    if edits[0].cost == 0:
        return [text]
    texts = dict.fromkeys(say_edit(edit, said.wording) for edit in edits)
    return list(texts)[:n]


def say_edit(edit: TextEdit, wording: Wording) -> str:
    """The edited caption in the words of the old one."""
    moved = {
        (what, edit.kept.index(i)): word
        for (what, i), word in wording.words.items()
        if i in edit.kept and what not in ("setting", "setting_first", "opener")
    }
    for what in ("setting", "setting_first", "opener"):
        if (what, 0) in wording.words:
            moved[what, 0] = wording.words[what, 0]
    last = edit.kept[-1]
    if ("noun", last + 1) in wording.words and wording.words.get(("separator", last)) == ",":
        moved.pop(("separator", len(edit.kept) - 1), None)  # no longer within a list but before its last member
    return say(edit.claim, Wording(MappingProxyType(moved)))


@lru_cache(maxsize=1 << 13)
def minimal_edits(scene: Scene, claim: Claim) -> tuple[TextEdit, ...]:
    """The edits of least cost, best first; a single one of cost 0 if `claim` holds.

    One for each choice of things and words at that cost; where a phrase can be rewritten in more than `_MAX_REWRITINGS`
    ways at equal cost, those that leave out most facts are not listed.
    """
    search = _Search(scene, claim, [_options(scene, phrase) for phrase in claim.phrases])
    search.run((), 0)
    edits = [edit for chosen in search.best for edit in _edits(scene, claim, chosen, search.cost)]
    if search.cost == 0:
        return tuple(edits[:1])
    return tuple(sorted(edits, key=lambda edit: edit.rank))  # stable: the order of things and words decides ties


@dataclass(slots=True)
class _Search:
    """Branch and bound over the choice of an option for each phrase. `best` are all choices of least `cost`."""

    scene: Scene
    claim: Claim
    options: list[list[_Option]]
    cost: int = 1_000
    best: list[tuple[_Option, ...]] = field(default_factory=list)

    def run(self, chosen: tuple[_Option, ...], spent: int) -> None:
        """Try every option for the next phrase; give up where the phrases so far already cost more than the best."""
        n = len(chosen)
        if n == len(self.options):
            self._finish(chosen, spent)
            return
        taken = {i for option in chosen for i in option.group}
        for option in self.options[n]:
            if spent + option.cost > self.cost:
                return  # options come cheapest first
            if taken.isdisjoint(option.group):
                link = _link_cost(self.scene, self.claim, chosen[-1], option, n - 1) if n else 0
                self.run((*chosen, option), spent + option.cost + link)

    def _finish(self, chosen: tuple[_Option, ...], spent: int) -> None:
        total = spent + (self.claim.setting not in (None, self.scene.setting))
        if total > self.cost or not any(option.phrases for option in chosen):
            return
        if total < self.cost:
            self.cost, self.best = total, []
        self.best.append(chosen)


def _link_cost(scene: Scene, claim: Claim, first: _Option, second: _Option, i: int) -> int:
    """1 if the stated relation i is lost with a dropped mention or does not hold, else 0."""
    relation = claim.relations[i]
    if relation is None:
        return 0
    return int(not (first.group and second.group and stands(scene, relation, first.group, second.group)))


def _edits(scene: Scene, claim: Claim, chosen: tuple[_Option, ...], cost: int) -> Iterator[TextEdit]:
    """All captions of one choice of things: each wrong fact replaced, or, later in order, left out."""
    kept = tuple(i for i, option in enumerate(chosen) if option.phrases)
    was = [claim.relations[i] if j == i + 1 else None for i, j in pairwise(kept)]
    links: list[tuple[str | None, ...]] = []
    for relation, (i, j) in zip(was, pairwise(kept), strict=True):
        first, second = chosen[i].group, chosen[j].group
        if relation is None or stands(scene, relation, first, second):
            links.append((relation,))
        else:
            links.append((*(other for other in RELATIONS if stands(scene, other, first, second)), None))
    settings: tuple[str | None, ...] = (
        (claim.setting,) if claim.setting in (None, scene.setting) else (scene.setting, None)
    )
    choices = product(product(*(chosen[i].phrases for i in kept)), product(*links), settings)
    for phrases, relations, setting in choices:
        edited = Claim(phrases=phrases, relations=relations, setting=setting)
        pairs = [(claim.phrases[i], phrase) for i, phrase in zip(kept, phrases, strict=True)]
        n_silenced = sum(_n_silenced(old, new) for old, new in pairs)
        n_silenced += sum(a is not None and b is None for a, b in zip(was, relations, strict=True))
        n_silenced += int(claim.setting is not None and setting is None)
        n_renamed = sum(old.category != new.category for old, new in pairs)
        yield TextEdit(claim=edited, kept=kept, cost=cost, rank=(len(chosen) - len(kept), n_renamed, n_silenced))


def _n_silenced(old: Phrase, new: Phrase) -> int:
    """How many facts the old mention states and the new one does not."""
    lost = sum(getattr(old, name) is not None and getattr(new, name) is None for name in ("size", "colour", "action"))
    return lost + (old.quantity != "a" and new.quantity == "a")


def _options(scene: Scene, phrase: Phrase) -> list[_Option]:
    """Every group `phrase` could be made to speak of, and dropping it; cheapest first, ties in the order of things."""
    options = [_option(phrase, (i,), _of_one(phrase, thing)) for i, thing in enumerate(scene.things)]
    if phrase.quantity != "a":
        for size in range(2, len(scene.things) + 1):
            for group in combinations(range(len(scene.things)), size):
                options.append(_option(phrase, group, _of_many(scene, phrase, group)))
    options.append(_Option(n_stated(phrase), (), ()))
    return sorted((o for o in options if o.phrases or not o.group), key=lambda option: option.cost)


def _option(phrase: Phrase, group: Group, rewritings: Iterable[Phrase]) -> _Option:
    costs = [(phrase_distance(phrase, new), new) for new in rewritings]
    least = min((cost for cost, _ in costs), default=0)
    best = sorted((new for cost, new in costs if cost == least), key=lambda new: _n_silenced(phrase, new))
    return _Option(least, group, tuple(best[:_MAX_REWRITINGS]))


def _of_one(phrase: Phrase, thing: Thing) -> Iterator[Phrase]:
    """`phrase` with quantity "a" and every wrong fact replaced by the thing's, or, later in order, left out."""
    choices: dict[str, list[str | None]] = {}
    for name in ("size", "colour", "action"):
        stated, true = getattr(phrase, name), getattr(thing, name)
        choices[name] = [stated] if stated in (None, true) else list(dict.fromkeys((true, None)))
    fits = is_a(thing.kind, phrase.category)
    categories = [phrase.category] if fits else _other_categories(phrase.category, thing.kind)
    for category in categories:
        for size, colour, action in product(choices["size"], choices["colour"], choices["action"]):
            yield Phrase(category=category, size=size, colour=colour, action=action)


def _of_many(scene: Scene, phrase: Phrase, group: Group) -> Iterator[Phrase]:
    """Rewritings of `phrase` whose extension is exactly `group`, with a quantity that says so."""
    things = [scene.things[i] for i in group]
    quantities = [q for q in QUANTITIES if q != "a" and counts(q, len(group))]
    if phrase.quantity in quantities:
        quantities = [phrase.quantity]
    choices: dict[str, list[str | None]] = {}
    for name in ("size", "colour", "action"):
        common = {getattr(thing, name) for thing in things}
        values = [getattr(phrase, name), *(common if len(common) == 1 else ()), None]
        choices[name] = list(dict.fromkeys(values))
    kinds = {thing.kind for thing in things}
    families = {KINDS[kind].family for kind in kinds} - {None}
    categories = [phrase.category, *(kinds if len(kinds) == 1 else ()), *(families if len(families) == 1 else ())]
    for category in dict.fromkeys(c for c in categories if c is not None):
        for size, colour, action in product(choices["size"], choices["colour"], choices["action"]):
            if action is not None and action not in actions_of(category):
                continue
            new = Phrase(category=category, size=size, colour=colour, action=action)
            if tuple(i for i, thing in enumerate(scene.things) if new.fits(thing)) == group:
                yield from (replace(new, quantity=quantity) for quantity in quantities)


def _other_categories(category: str, kind: str) -> list[str]:
    """What to call a `kind` instead of `category`: first a word of the same level, then of the other."""
    family = KINDS[kind].family
    if family is None:
        return [kind]
    return [family, kind] if category in HYPERNYMS else [kind, family]
