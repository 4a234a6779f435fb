"""English word forms for captions: plurals, verb forms, a/an. Rules plus the irregular words that photos call for."""

from collections.abc import Iterator

_IRREGULAR_PLURALS = {
    "man": "men", "woman": "women", "child": "children", "person": "people", "foot": "feet", "tooth": "teeth",
    "goose": "geese", "mouse": "mice", "ox": "oxen", "leaf": "leaves", "knife": "knives", "wolf": "wolves",
    "calf": "calves", "half": "halves", "scarf": "scarves", "shelf": "shelves", "loaf": "loaves", "sheep": "sheep",
    "deer": "deer", "fish": "fish", "bison": "bison", "aircraft": "aircraft", "gentleman": "gentlemen",
    "policeman": "policemen", "fireman": "firemen", "fisherman": "fishermen", "businessman": "businessmen",
    "cameraman": "cameramen", "guy": "guys", "photo": "photos", "piano": "pianos", "hero": "heroes",
    "bus": "buses", "potato": "potatoes", "tomato": "tomatoes",
}  # fmt: skip
_SINGULARS = {plural: singular for singular, plural in _IRREGULAR_PLURALS.items()}

# base: (past, past participle); third person and -ing follow the rules but for the few below.
_IRREGULAR_PAST = {
    "be": ("was", "been"), "have": ("had", "had"), "do": ("did", "done"), "go": ("went", "gone"),
    "run": ("ran", "run"), "sit": ("sat", "sat"), "stand": ("stood", "stood"), "lie": ("lay", "lain"),
    "ride": ("rode", "ridden"), "swim": ("swam", "swum"), "throw": ("threw", "thrown"), "hold": ("held", "held"),
    "catch": ("caught", "caught"), "eat": ("ate", "eaten"), "drink": ("drank", "drunk"), "sing": ("sang", "sung"),
    "fly": ("flew", "flown"), "fall": ("fell", "fallen"), "drive": ("drove", "driven"), "swing": ("swung", "swung"),
    "sleep": ("slept", "slept"), "leap": ("leapt", "leapt"), "wear": ("wore", "worn"), "take": ("took", "taken"),
    "make": ("made", "made"), "get": ("got", "got"), "give": ("gave", "given"), "hang": ("hung", "hung"),
    "hit": ("hit", "hit"), "cut": ("cut", "cut"), "read": ("read", "read"), "write": ("wrote", "written"),
    "draw": ("drew", "drawn"), "speak": ("spoke", "spoken"), "fight": ("fought", "fought"), "dig": ("dug", "dug"),
    "spin": ("spun", "spun"), "slide": ("slid", "slid"), "blow": ("blew", "blown"), "shake": ("shook", "shaken"),
    "see": ("saw", "seen"), "bite": ("bit", "bitten"), "lead": ("led", "led"), "leave": ("left", "left"),
    "build": ("built", "built"), "feed": ("fed", "fed"), "bend": ("bent", "bent"), "kneel": ("knelt", "knelt"),
    "lay": ("laid", "laid"), "put": ("put", "put"), "set": ("set", "set"), "sell": ("sold", "sold"),
    "shoot": ("shot", "shot"), "stick": ("stuck", "stuck"), "tear": ("tore", "torn"), "begin": ("began", "begun"),
    "come": ("came", "come"), "keep": ("kept", "kept"), "buy": ("bought", "bought"), "hide": ("hid", "hidden"),
    "show": ("showed", "shown"), "rise": ("rose", "risen"), "sweep": ("swept", "swept"), "strike": ("struck", "struck"),
}  # fmt: skip
_THIRD = {"be": "is", "have": "has", "do": "does", "go": "goes"}
_PARTICIPLE = {"be": "being", "lie": "lying", "die": "dying", "tie": "tying", "ski": "skiing"}
_VOWELS = "aeiou"
# Verbs of several syllables whose last consonant is not doubled.
_UNDOUBLED = ("er", "en", "on", "or", "et", "el", "op", "it", "ow", "in")
_SOUNDS_LIKE_VOWEL = ("hour", "honest", "heir")
_SOUNDS_LIKE_CONSONANT = ("uni", "use", "usu", "one", "once", "euro", "ukulele", "ute")


def plural(noun: str) -> str:
    """Plural of a lower-case noun in the singular.

    Example:
        >>> plural("man"), plural("bench"), plural("puppy"), plural("boy")
        ('men', 'benches', 'puppies', 'boys')
    """
    if noun in _IRREGULAR_PLURALS:
        return _IRREGULAR_PLURALS[noun]
    if noun in _SINGULARS:
        return noun
    if noun.endswith(("s", "x", "z", "ch", "sh")):
        return noun + "es"
    if noun.endswith("y") and len(noun) > 1 and noun[-2] not in _VOWELS:
        return noun[:-1] + "ies"
    return noun + "s"


def singular(noun: str) -> str:
    """Singular of a lower-case noun in the plural.

    Example:
        >>> singular("men"), singular("benches"), singular("puppies"), singular("boys")
        ('man', 'bench', 'puppy', 'boy')
    """
    if noun in _SINGULARS:
        return _SINGULARS[noun]
    if noun.endswith("ies") and len(noun) > 4:
        return noun[:-3] + "y"
    if noun.endswith(("ches", "shes", "xes", "sses", "zes")):
        return noun[:-2]
    if noun.endswith("s") and not noun.endswith("ss"):
        return noun[:-1]
    return noun


def verb_form(base: str, tag: str) -> str:
    """A verb in the form of a Penn tag: VB, VBP, VBZ, VBG, VBD or VBN (of "be": as with a singular subject).

    Example:
        >>> [verb_form("run", tag) for tag in ("VBP", "VBZ", "VBG", "VBD", "VBN")]
        ['run', 'runs', 'running', 'ran', 'run']
        >>> verb_form("climb", "VBG"), verb_form("ride", "VBG"), verb_form("carry", "VBZ"), verb_form("lie", "VBG")
        ('climbing', 'riding', 'carries', 'lying')
    """
    if tag == "VBZ":
        return _third_person(base)
    if tag == "VBG":
        return _participle(base)
    if tag in ("VBD", "VBN"):
        if base in _IRREGULAR_PAST:
            return _IRREGULAR_PAST[base][tag == "VBN"]
        if base.endswith("e"):
            return base + "d"
        if base.endswith("y") and base[-2:-1] not in _VOWELS:
            return base[:-1] + "ied"
        return _doubled(base) + "ed"
    return "are" if base == "be" and tag == "VBP" else base


def _third_person(base: str) -> str:
    if base in _THIRD:
        return _THIRD[base]
    if base.endswith("y") and base[-2:-1] not in _VOWELS:
        return base[:-1] + "ies"
    return base + ("es" if base.endswith(("s", "x", "z", "ch", "sh", "o")) else "s")


def _participle(base: str) -> str:
    if base in _PARTICIPLE:
        return _PARTICIPLE[base]
    if base.endswith("e") and not base.endswith(("ee", "ye", "oe")):
        return base[:-1] + "ing"
    return _doubled(base) + "ing"


def _doubled(base: str) -> str:
    """With its last consonant doubled, where English does so: "run" to "runn", "play" and "open" as they are."""
    if len(base) < 3 or base[-1] in _VOWELS + "wxyh" or base[-2] not in _VOWELS or base[-3] in _VOWELS:
        return base
    n_vowel_groups = sum(letter in _VOWELS and (i == 0 or base[i - 1] not in _VOWELS) for i, letter in enumerate(base))
    return base if n_vowel_groups > 1 and base.endswith(_UNDOUBLED) else base + base[-1]


def base_forms(word: str) -> Iterator[str]:
    """What `word` may be a regular form of, itself first; for looking up in a list of known verbs.

    Example:
        >>> list(base_forms("swimming"))
        ['swimming', 'swimm', 'swimme', 'swim']
    """
    yield word
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) > len(ending) + 1:
            stem = word.removesuffix(ending)
            yield stem
            if ending in ("ing", "ed"):
                yield stem + "e"
                if len(stem) > 2 and stem[-1] == stem[-2]:
                    yield stem[:-1]


def article(following: str) -> str:
    """ "a" or "an", by how the following word sounds.

    Example:
        >>> article("old"), article("red"), article("hour"), article("unicycle")
        ('an', 'a', 'an', 'a')
    """
    word = following.lower()
    if word.startswith(_SOUNDS_LIKE_VOWEL):
        return "an"
    if word.startswith(_SOUNDS_LIKE_CONSONANT):
        return "a"
    return "an" if word[:1] in _VOWELS and word else "a"
