"""What is wrong between an image and a caption, seen from either side: error types, residual, scaffold, instruction.

Both sides follow the minimal edit. `text_difference` says how the caption must change to fit the image,
`image_difference` how the image must change to fit the caption. Error types: a noun or kind is *object*; colour, size
and setting are *attribute*; *relation*, *action* and *count* (quantity) speak for themselves. *Hallucination* is a
mention that has no counterpart in the image and is dropped (text side only; a thing the image lacks is *object*, as the
paper's Table 16 has hardly any hallucination among images). A thing that changes because a counted kind is too many or
too few is *count*.
"""

from dataclasses import dataclass
from itertools import pairwise

from repair.core.identity import derive_rng
from repair.core.records import ErrorType
from repair.world.claims import Claim, Phrase, counts, groundings
from repair.world.distance import scene_distance
from repair.world.image_edits import minimal_image_edit
from repair.world.language import Wording, parse_said, say
from repair.world.scenes import Scene, Thing
from repair.world.text_edits import TextEdit, minimal_edits, say_edit
from repair.world.vocabulary import KINDS, QUANTITIES, RELATIONS, SETTINGS, family_of, is_a, nouns


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How one side must change. All texts are "" and `error_types` is () if nothing is wrong.

    `scaffold` is "nothing" if every fact is wrong; `n_facts` counts the changed facts (see `world.distance`).
    """

    error_types: tuple[ErrorType, ...]  # in the order of ErrorType, each once
    residual: str
    scaffold: str
    instruction: str
    n_facts: int


@dataclass(frozen=True, slots=True)
class _Change:
    error: ErrorType
    residual: str  # "dog: red, should be blue"
    order: str  # imperative without capital and full stop; "" if another change orders it too


_NONE = Difference(error_types=(), residual="", scaffold="", instruction="", n_facts=0)


def text_difference(scene: Scene, text: str) -> Difference:
    """How the caption must change to be true of the scene. Raises DataError if it does not parse."""
    said = parse_said(text)
    edit = minimal_edits(scene, said.claim)[0]
    if edit.cost == 0:
        return _NONE
    changes = _text_changes(said.claim, said.wording, edit)
    return _difference(changes, scaffold=_text_scaffold(said.claim, said.wording, edit), n_facts=edit.cost)


def image_difference(scene: Scene, text: str) -> Difference:
    """How the scene must change to fit the caption. Raises DataError if it does not parse or no scene fits it."""
    claim = parse_said(text).claim
    edited = minimal_image_edit(scene, claim, rng=derive_rng(0, "difference", scene.to_json(), text))
    if edited == scene:
        return _NONE
    changes = _scene_changes(scene, edited, claim)
    same = tuple(i for i, (old, new) in enumerate(zip(scene.things, edited.things, strict=False)) if old == new)
    setting = scene.setting if scene.setting == edited.setting else None
    return _difference(changes, scaffold=_listed(scene, same, setting), n_facts=scene_distance(scene, edited))


def _difference(changes: list[_Change], *, scaffold: str, n_facts: int) -> Difference:
    errors = {change.error for change in changes}
    orders = [change.order for change in changes if change.order]
    sentence = ", ".join(orders[:-1]) + " and " + orders[-1] if len(orders) > 1 else orders[0]
    return Difference(
        error_types=tuple(error for error in ErrorType if error in errors),
        residual="; ".join(change.residual for change in changes),
        scaffold=scaffold,
        instruction=sentence[0].upper() + sentence[1:] + ".",
        n_facts=n_facts,
    )


# ------------------------------------------------------------------------------------------ text side


def _text_changes(claim: Claim, wording: Wording, edit: TextEdit) -> list[_Change]:
    changes = []
    new = dict(zip(edit.kept, edit.claim.phrases, strict=True))
    for i, phrase in enumerate(claim.phrases):
        if i not in new:
            mention = _mention(phrase)
            changes.append(_Change(ErrorType.HALLUCINATION, f"{mention}: not there", f'leave out "{mention}"'))
        else:
            changes += _phrase_changes(phrase, new[i], wording, i)
    links = {i: edit.claim.relations[k] for k, (i, j) in enumerate(pairwise(edit.kept)) if j == i + 1}
    for i, relation in enumerate(claim.relations):
        if i in links and relation is not None and links[i] != relation:
            word = wording.words.get(("relation", i + 1), RELATIONS[relation][0])
            now = links[i]
            changes.append(_swap(ErrorType.RELATION, "relation", word, RELATIONS[now][0] if now else None))
    if claim.setting and edit.claim.setting != claim.setting:
        word = wording.words.get(("setting", 0), SETTINGS[claim.setting][0])
        true = edit.claim.setting
        changes.append(_swap(ErrorType.ATTRIBUTE, "setting", word, SETTINGS[true][0] if true else None))
    return changes


def _phrase_changes(old: Phrase, new: Phrase, wording: Wording, i: int) -> list[_Change]:
    noun = _noun(old, wording.words.get(("noun", i)))
    changes: list[_Change] = []
    if old.quantity != new.quantity:
        word = wording.words.get(("quantity", i), QUANTITIES[old.quantity][0])
        changes.append(_swap(ErrorType.COUNT, f"number of {noun}", word, QUANTITIES[new.quantity][0]))
    for name in ("size", "colour", "action"):
        was, now = getattr(old, name), getattr(new, name)
        if was != now:
            error = ErrorType.ACTION if name == "action" else ErrorType.ATTRIBUTE
            said = wording.words.get((name, i), was) if was is not None else None
            changes.append(_swap(error, f"{name} of {noun}", said, now))
    if old.category != new.category:
        changes.append(_swap(ErrorType.OBJECT, "object", noun, _noun(new)))
    return changes


def _swap(error: ErrorType, fact: str, old: str | None, new: str | None) -> _Change:
    if new is None:
        return _Change(error, f"{fact}: “{old}” is wrong", f'leave out "{old}"')
    if old is None:
        return _Change(error, f"{fact}: unsaid, is “{new}”", f'say "{new}"')
    return _Change(error, f"{fact}: “{old}”, should be “{new}”", f'replace "{old}" with "{new}"')


def _text_scaffold(claim: Claim, wording: Wording, edit: TextEdit) -> str:
    """The caption without what changes; a wrong noun gives way to a hypernym that both share, else its mention goes."""
    phrases, kept = [], []
    for i, new in zip(edit.kept, edit.claim.phrases, strict=True):
        old = claim.phrases[i]
        family = family_of(old.category)
        same = old.category == new.category
        if not same and (family is None or family != family_of(new.category)):
            continue
        kept.append(i)
        phrases.append(
            Phrase(
                category=old.category if same or family is None else family,
                quantity=old.quantity if old.quantity == new.quantity else "a",
                colour=old.colour if old.colour == new.colour else None,
                size=old.size if old.size == new.size else None,
                action=old.action if old.action == new.action else None,
            )
        )
    setting = claim.setting if claim.setting == edit.claim.setting else None
    if not phrases:
        return wording.words.get(("setting", 0), SETTINGS[setting][0]) if setting else "nothing"
    links = {i: edit.claim.relations[k] for k, (i, j) in enumerate(pairwise(edit.kept)) if j == i + 1}
    relations = tuple(
        claim.relations[i] if j == i + 1 and links.get(i) == claim.relations[i] else None for i, j in pairwise(kept)
    )
    reduced = Claim(phrases=tuple(phrases), relations=relations, setting=setting)
    return say_edit(TextEdit(claim=reduced, kept=tuple(kept), cost=0, rank=(0, 0, 0)), wording)


# ----------------------------------------------------------------------------------------- image side

_INVERSE = {"left": "right", "right": "left", "above": "below", "below": "above", "on": "below"}


def _scene_changes(scene: Scene, edited: Scene, claim: Claim) -> list[_Change]:
    miscounted = [
        phrase
        for phrase in claim.phrases
        if phrase.quantity != "a"
        and not counts(phrase.quantity, sum(is_a(thing.kind, phrase.category) for thing in scene.things))
    ]
    changes = []
    for i, new in enumerate(edited.things):
        old = scene.things[i] if i < len(scene.things) else None
        counted = any((old is not None and phrase.fits(old)) != phrase.fits(new) for phrase in miscounted)
        where = _where(edited, i, claim)
        if old is None:
            error, name = ErrorType.COUNT if counted else ErrorType.OBJECT, _named(edited, i)
            changes.append(_Change(error, f"{name}: missing", f"add {name}{where}"))
        elif old != new:
            changes += _thing_changes(scene, edited, i, where=where, counted=counted)
    if scene.setting != edited.setting:
        was, now = SETTINGS[scene.setting][0], SETTINGS[edited.setting][0]
        order = f'change the setting from "{was}" to "{now}"'
        changes.append(_Change(ErrorType.ATTRIBUTE, f"setting: “{was}”, should be “{now}”", order))
    return changes


def _thing_changes(scene: Scene, edited: Scene, i: int, *, where: str, counted: bool) -> list[_Change]:
    """One change per fact; where the kind changes, one order turns the thing into what it should be."""
    old, new = scene.things[i], edited.things[i]
    the = "the " + _named(scene, i).split(" ", 1)[1]
    changes = []
    if old.kind != new.kind:
        error = ErrorType.COUNT if counted else ErrorType.OBJECT
        target = _named(edited, i, sized=old.size != new.size, acting=old.action != new.action)
        changes.append(_Change(error, f"{the}: should be {target}", f"turn {the} into {target}"))
    for name, error in (("colour", ErrorType.ATTRIBUTE), ("size", ErrorType.ATTRIBUTE), ("action", ErrorType.ACTION)):
        was, now = getattr(old, name), getattr(new, name)
        if was == now:
            continue
        if counted and old.kind == new.kind:
            error = ErrorType.COUNT
        order = _order(the, name, new) if old.kind == new.kind else ""
        changes.append(_Change(error, f"{name} of {the}: {was or 'none'}, should be {now or 'none'}", order))
    if old.place != new.place:
        to = f" so that it is{where}" if where else " elsewhere"
        changes.append(_Change(ErrorType.RELATION, f"place of {the}: should be{where or ' free'}", f"move {the}{to}"))
    return changes


def _order(the: str, name: str, new: Thing) -> str:
    if name == "action":
        return f"show {the} {new.action}"
    if name == "colour" and KINDS[new.kind].family == "person":
        return f"dress {the} in {new.colour}"
    return f"make {the} {getattr(new, name)}"


def _named(scene: Scene, i: int, *, sized: bool = False, acting: bool = False) -> str:
    """A mention of one thing by kind and colour, and by size if another looks the same but for it."""
    thing = scene.things[i]
    alike = [other for other in scene.things if (other.kind, other.colour) == (thing.kind, thing.colour)]
    return _mention(
        Phrase(
            category=thing.kind,
            colour=thing.colour,
            size=thing.size if sized or len(alike) > 1 else None,
            action=thing.action if acting else None,
        )
    )


def _where(scene: Scene, i: int, claim: Claim) -> str:
    """ " to the left of the red car": the first stated relation of a thing, in a scene of which the claim holds."""
    groups = next(groundings(scene, claim))
    for relation, first, second in zip(claim.relations, groups, groups[1:], strict=False):
        if relation is None or i not in (*first, *second):
            continue
        word, other = (relation, second[0]) if i in first else (_INVERSE[relation], first[0])
        return f" {RELATIONS[word][0]} the {_named(scene, other).split(' ', 1)[1]}"
    return ""


def _listed(scene: Scene, things: tuple[int, ...], setting: str | None) -> str:
    names = [_named(scene, i) for i in things]
    if setting:
        names.append(f"all {SETTINGS[setting][0]}" if names else SETTINGS[setting][0])
    return ", ".join(names) or "nothing"


def _mention(phrase: Phrase) -> str:
    return say(Claim(phrases=(phrase,)))


def _noun(phrase: Phrase, said: str | None = None) -> str:
    """The noun of a mention, in the word that was `said` if it is one for it."""
    forms = nouns(phrase.category)
    chosen = next((pair for pair in forms if pair[0] == said), forms[0])
    return chosen[phrase.quantity != "a"]
