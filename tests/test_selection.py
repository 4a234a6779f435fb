"""Selection against hand-made failures and against a slow, obvious oracle."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from repair.core.errors import DataError
from repair.core.identity import hash_bytes
from repair.core.records import Candidate, Direction, Failure, RepairStatus
from repair.core.texts import folded
from repair.selection import Contents, Measures, Rejection, measure, select, summarise

FAILURE = Failure(
    failure_id="f0",
    direction=Direction.IMAGE_TO_TEXT,
    query_id="image-1",
    false_positive_id="caption-9",
    ground_truth_id="caption-1",
    false_positive_rank=1,
    ground_truth_rank=2,
    false_positive_score=0.3,
    ground_truth_score=0.2,
    outranks=True,
)
CONTENTS = Contents(false_positive="A red dog runs.", ground_truths=("A blue cat sits.", "a cat"))


def failure(name, direction=Direction.IMAGE_TO_TEXT):
    fields = {slot: getattr(FAILURE, slot) for slot in FAILURE.__slots__}
    return Failure(**{**fields, "failure_id": name, "direction": direction})


def text(index, words, name="f0"):
    return Candidate(failure_id=name, index=index, key=hash_bytes(words.encode()), text=words)


def broken(index, name="f0"):
    return Candidate(failure_id=name, index=index, key=None, text=None, error="timed out")


def measures(*rows):
    """Rows (gain, closeness)."""
    array = np.array(rows, dtype=np.float32).reshape(-1, 2)
    return Measures(query_score=array[:, 0] + 0.3, gain=array[:, 0], closeness=array[:, 1])


def choose(candidates, *rows, failures=(FAILURE,), **options):
    contents = {f.failure_id: CONTENTS for f in failures}
    return select(failures, candidates, measures(*rows), contents=contents, **options)


def test_measures_are_cosines_of_the_right_pairs():
    query, fp, edit = (np.array([row], dtype=np.float32) for row in ([1, 0, 0], [0.6, 0.8, 0], [0.8, 0.6, 0]))
    found = measure(query=query, false_positive=fp, candidate=edit)
    assert found.query_score == pytest.approx([0.8])
    assert found.gain == pytest.approx([0.2])
    assert found.closeness == pytest.approx([0.96])


def test_the_closest_of_the_valid_candidates_wins():
    picked = choose(
        [text(0, "a blue dog runs"), text(1, "a blue dog sits"), text(2, "a red dog sits")],
        (0.20, 0.90),
        (0.05, 0.95),
        (0.01, 0.99),
    )
    (repair,) = picked.repairs
    assert (repair.status, repair.candidate_index, repair.text) == (RepairStatus.REPAIRED, 1, "a blue dog sits")
    assert (repair.n_candidates, repair.n_valid) == (3, 2)
    assert (repair.gain, repair.closeness) == (0.05, 0.95)
    assert [c.rejected for c in picked.scored] == [None, None, Rejection.LOW_GAIN]


def test_without_the_floor_the_near_copy_would_win():
    rows = [(0.20, 0.90), (0.01, 0.99)]
    candidates = [text(0, "a blue cat runs"), text(1, "a red dog runs now")]
    assert choose(candidates, *rows, min_gain=0.02).repairs[0].candidate_index == 0
    assert choose(candidates, *rows, min_gain=0.0).repairs[0].candidate_index == 1


def test_a_gain_equal_to_the_floor_is_enough():
    assert choose([text(0, "a blue dog")], (0.02, 0.9), min_gain=0.02).repairs[0].status is RepairStatus.REPAIRED


def test_best_gain_takes_the_largest_gain():
    rows = [(0.20, 0.90), (0.05, 0.95)]
    candidates = [text(0, "a blue cat runs"), text(1, "a blue dog runs")]
    assert choose(candidates, *rows, rule="best_gain").repairs[0].candidate_index == 0


def test_ties_go_to_the_lower_index_whatever_the_order_given():
    candidates = [text(2, "a blue dog"), text(0, "blue dog"), text(1, "dog blue")]
    picked = choose(candidates, (0.1, 0.9), (0.1, 0.9), (0.1, 0.9))
    assert picked.repairs[0].candidate_index == 0
    assert [c.index for c in picked.scored] == [0, 1, 2]


@pytest.mark.parametrize(
    ("candidate", "row", "reason"),
    [
        (broken(0), (np.nan, np.nan), Rejection.CALL_FAILED),
        (text(0, "a green dog"), (np.nan, np.nan), Rejection.UNREADABLE),
        (text(0, "A RED dog  runs"), (0.5, 0.9), Rejection.NO_OP),
        (text(0, "a red dog runs!"), (0.0, 0.9995), Rejection.NO_OP),
        (text(0, "A cat."), (0.5, 0.2), Rejection.COPY),
        (text(0, "a red dog sits"), (0.019, 0.9), Rejection.LOW_GAIN),
    ],
)
def test_each_reason_to_reject(candidate, row, reason):
    picked = choose([candidate], row)
    assert picked.scored[0].rejected == reason
    assert picked.repairs[0].status is not RepairStatus.REPAIRED
    assert picked.repairs[0].key is None


def test_a_near_copy_that_gains_is_no_no_op():
    assert choose([text(0, "a red dog runs!")], (0.03, 0.9995)).scored[0].rejected is None


def test_image_candidates_are_compared_by_content_hash():
    failures = (failure("t", Direction.TEXT_TO_IMAGE),)
    contents = {"t": Contents(false_positive="b2:fp", ground_truths=("b2:gt",))}
    candidates = [
        Candidate(failure_id="t", index=i, key=k, text=None) for i, k in enumerate(["b2:fp", "b2:gt", "b2:e"])
    ]
    picked = select(failures, candidates, measures((0.5, 0.9), (0.5, 0.9), (0.5, 0.1)), contents=contents)
    assert [c.rejected for c in picked.scored] == [Rejection.NO_OP, Rejection.COPY, None]
    assert picked.repairs[0].key == "b2:e"
    assert picked.repairs[0].text is None


def test_the_verifier_is_asked_about_selected_candidates_until_one_passes():
    candidates = [text(0, "a blue cat"), text(1, "a blue dog")]
    rows = [(0.2, 0.8), (0.2, 0.9)]
    truth = {("f0", 0): True, ("f0", 1): False}
    answers, n_asked = {}, 0
    while True:
        (repair,) = choose(candidates, *rows, accepted=answers).repairs
        pair = (repair.failure_id, repair.candidate_index)
        if pair in answers:
            break
        answers[pair], n_asked = truth[pair], n_asked + 1
    assert (repair.candidate_index, n_asked) == (0, 2)
    refused = choose(candidates, *rows, accepted={("f0", 0): False, ("f0", 1): False})
    assert [c.rejected for c in refused.scored] == [Rejection.REFUSED] * 2
    assert refused.repairs[0].status is RepairStatus.UNREPAIRED


def test_rule_first_takes_what_exists_unchecked_and_keeps_the_scores():
    candidates = [broken(0), text(1, "A red dog runs."), text(2, "a blue dog")]
    picked = choose(candidates, (np.nan, np.nan), (-0.3, 1.0), (0.3, 0.9), rule="first", accepted={("f0", 1): False})
    assert picked.repairs[0].candidate_index == 1
    assert [c.rejected for c in picked.scored] == [Rejection.CALL_FAILED, None, None]
    assert picked.scored[1].gain == pytest.approx(-0.3)


def test_the_rule_is_the_only_difference_between_the_ablation_and_the_default():
    candidates = [text(0, "a dog"), text(1, "a blue dog")]
    rows = [(0.3, 0.5), (0.3, 0.9)]
    default, ablated = choose(candidates, *rows), choose(candidates, *rows, rule="first")
    assert default.scored == ablated.scored
    assert (default.repairs[0].candidate_index, ablated.repairs[0].candidate_index) == (1, 0)


def test_statuses():
    i2t, t2i = Direction.IMAGE_TO_TEXT, Direction.TEXT_TO_IMAGE
    failures = [failure(n, d) for n, d in zip("abcde", [i2t, i2t, t2i, i2t, i2t], strict=True)]
    candidates = [broken(0, "a"), text(1, "a red dog sits", "a"), text(0, "a red dog sits", "b")]
    picked = choose(
        candidates,
        (np.nan, np.nan),
        (0.0, 0.9),
        (0.0, 0.9),
        failures=failures,
        without_editor={t2i},
        errors={"d": "instruction: timed out"},
    )
    assert [(r.status, r.reason) for r in picked.repairs] == [
        (RepairStatus.FAILED, "1 of 2 edits failed"),
        (RepairStatus.UNREPAIRED, "no valid candidate: low_gain 1"),
        (RepairStatus.NEGATIVE_ONLY, "no editor for this modality"),
        (RepairStatus.FAILED, "instruction: timed out"),
        (RepairStatus.UNREPAIRED, "no valid candidate: none was made"),
    ]
    assert summarise(picked) == {
        "repaired": 0, "unrepaired": 2, "negative_only": 1, "failed": 2, "valid_candidates": 0, "call_failed": 1,
        "low_gain": 2,
    }  # fmt: skip


def test_nothing_to_select_from():
    assert select([], [], measures(), contents={}).repairs == ()


def test_a_candidate_without_its_failure_is_refused():
    with pytest.raises(DataError, match="failure other"):
        choose([text(0, "a dog", "other")], (0.1, 0.9))


TEXTS = ["a red dog runs", "a cat", "one", "two", "three"]
ROW = st.tuples(st.integers(0, 2), st.sampled_from(TEXTS), st.integers(-3, 3), st.integers(0, 3), st.booleans())


@given(st.lists(ROW, max_size=12), st.sampled_from(["closest", "best_gain", "first"]), st.randoms())
def test_equals_the_obvious_oracle(rows, rule, random):
    """Coarse grids of values make ties common."""
    failures = [failure(str(name)) for name in range(3)]
    counts = {}
    items = []
    for name, words, gain, close, exists in rows:
        index = counts[name] = counts.get(name, -1) + 1
        candidate = text(index, words, str(name)) if exists else broken(index, str(name))
        items.append((candidate, (gain / 50, close / 4 + 0.2) if exists else (np.nan, np.nan)))
    random.shuffle(items)
    picked = choose([c for c, _ in items], *[m for _, m in items], failures=failures, rule=rule)

    for row, item in enumerate(failures):
        best = None
        for candidate, (gain, close) in sorted(items, key=lambda pair: pair[0].index):
            if candidate.failure_id != item.failure_id or candidate.key is None:
                continue
            if rule != "first":
                words = folded(candidate.text)
                if words == "a red dog runs" or words in ("a blue cat sits", "a cat") or gain < 0.02:
                    continue
            merit = {"closest": close, "best_gain": gain, "first": 0}[rule]
            if best is None or merit > best[0]:
                best = (merit, candidate.index)
        assert picked.repairs[row].candidate_index == (None if best is None else best[1])
