import pytest

from repair.backends.lexical.judging import Finding, Status, judge
from repair.backends.lexical.parsing import analyse
from repair.backends.lexical.scoring import WEIGHTS, features, truth_score
from repair.core.records import ErrorType
from tests.backends.cases import BLUE_SHIRT, TWO_DOGS


def found(text: str, captions: tuple[str, ...]) -> tuple[Finding, ...]:
    return judge(analyse(text), [analyse(caption) for caption in captions])


def of(findings: tuple[Finding, ...], claim: str) -> Finding:
    return next(finding for finding in findings if finding.claim == claim)


@pytest.mark.parametrize(
    "text, captions, claim, aspect, status, evidence",
    [
        ("A man in a red shirt rides .", BLUE_SHIRT, "red", ErrorType.ATTRIBUTE, Status.CONTRADICTED, "blue"),
        ("A man in a blue shirt rides .", BLUE_SHIRT, "blue", ErrorType.ATTRIBUTE, Status.SUPPORTED, ""),
        ("A woman rides a bicycle .", BLUE_SHIRT, "woman", ErrorType.OBJECT, Status.CONTRADICTED, "man"),
        ("A person rides a bicycle .", BLUE_SHIRT, "person", ErrorType.OBJECT, Status.SUPPORTED, ""),
        ("A man rides a horse .", BLUE_SHIRT, "horse", ErrorType.OBJECT, Status.UNMENTIONED, ""),
        ("A man repairs a bike .", BLUE_SHIRT, "bike", ErrorType.OBJECT, Status.SUPPORTED, ""),
        ("A man sits on a street .", BLUE_SHIRT, "sits", ErrorType.ACTION, Status.CONTRADICTED, "rides"),
        ("A man sings on a street .", BLUE_SHIRT, "sings", ErrorType.ACTION, Status.UNMENTIONED, ""),
        ("Three dogs run .", TWO_DOGS, "three", ErrorType.COUNT, Status.CONTRADICTED, "two"),
        ("A dog and another dog run .", TWO_DOGS, "two", ErrorType.COUNT, Status.SUPPORTED, ""),
        ("Two dogs jog in the snow .", TWO_DOGS, "jog", ErrorType.ACTION, Status.SUPPORTED, ""),
        ("Two poodles run .", TWO_DOGS, "poodles", ErrorType.OBJECT, Status.POSSIBLE, ""),
        ("Two snowy dogs run .", TWO_DOGS[:2], "snowy", ErrorType.ATTRIBUTE, Status.POSSIBLE, ""),
    ],
)
def test_claims(
    text: str, captions: tuple[str, ...], claim: str, aspect: ErrorType, status: Status, evidence: str
) -> None:
    finding = of(found(text, captions), claim)
    assert (finding.aspect, finding.status, finding.evidence) == (aspect, status, evidence)


def test_opposite_relation() -> None:
    findings = found("A cat sleeps under a table .", ("A cat sleeps on a table .",))
    relation = next(finding for finding in findings if finding.aspect is ErrorType.RELATION)
    assert (relation.claim, relation.status, relation.evidence) == ("under", Status.CONTRADICTED, "on")


def test_a_role_claims_what_it_does() -> None:
    surfer = [f for f in found("A surfer stands .", ("A man stands in a park .",)) if f.aspect is ErrorType.ACTION]
    assert of(tuple(surfer), "surfer").status is Status.UNMENTIONED
    surfer = [f for f in found("A surfer stands .", ("A man rides a surfboard .",)) if f.aspect is ErrorType.ACTION]
    assert of(tuple(surfer), "surfer").status is Status.SUPPORTED


def test_share_counts_captions() -> None:
    findings = found("A blue shirt .", ("A blue shirt .", "A man in a shirt .", "A dog .", "A cat ."))
    assert of(findings, "shirt").share == pytest.approx(0.5)
    assert of(findings, "blue").share == pytest.approx(0.25)


def test_findings_come_in_the_order_of_the_words() -> None:
    tokens = [finding.token for finding in found("Two women in red hats sing on a beach .", BLUE_SHIRT)]
    assert tokens == sorted(tokens)


def test_no_evidence_no_findings() -> None:
    assert judge(analyse("A dog ."), []) == ()


def test_features_are_those_of_the_weights_in_order() -> None:
    claim, evidence = analyse("A camel runs ."), [analyse(text) for text in TWO_DOGS]
    assert list(features(claim, evidence, judge(claim, evidence))) == list(WEIGHTS)


def test_truer_captions_score_higher() -> None:
    def score(text: str) -> float:
        claim, evidence = analyse(text), [analyse(caption) for caption in TWO_DOGS]
        return truth_score(claim, evidence, judge(claim, evidence))

    true, near, far = (
        score("Two dogs run in the snow ."),
        score("Three dogs rush in the snow ."),
        score("A man cooks ."),
    )
    assert 1 > true > near > far > 0
    assert score("") == 0.0
    assert truth_score(analyse("A dog ."), [], ()) == 0.0
