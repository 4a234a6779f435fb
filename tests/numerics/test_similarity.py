import faiss
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from repair.core.errors import ConfigError, DataError
from repair.numerics.cosines import normalise, pair_scores, quantise, tiles
from repair.numerics.ranking import encode
from repair.numerics.similarity import best_truths, search_both
from tests import reference


def random_unit(rng, n, dim):
    return normalise(rng.standard_normal((n, dim)))


def tied(rng, n, dim):
    """Unit or zero vectors drawn from few values, so that most scores tie; some rows repeat exactly."""
    vectors = normalise(rng.integers(-1, 2, size=(n, dim)))
    return vectors[rng.integers(0, n, size=n)] if n else vectors


def random_matches(rng, n_rows, n_columns, rate):
    return sparse.csr_array(rng.random((n_rows, n_columns)) < rate)


def as_bytes(found):
    return b"".join(
        array.tobytes()
        for side in (found.rows, found.columns)
        for array in (
            side.indices,
            side.scores,
            side.probe_ranks,
            side.probe_ties,
            side.probe_ties_above,
            side.probe_scores,
        )
    )


def assert_equals_reference(rows, columns, matches, k, found, row_probes, column_probes):
    scores, dense = reference.exact_scores(rows, columns), matches.toarray()
    for side, table, excluded, probes in (
        (found.rows, scores, dense, row_probes),
        (found.columns, scores.T, dense.T, column_probes),
    ):
        for query in range(len(table)):
            out = set(np.flatnonzero(excluded[query]))
            indices, values = reference.top_k(table[query], out, k)
            assert side.indices[query].tolist() == indices
            assert side.scores[query].tolist() == values
            for place, probe in enumerate(probes[query]):
                if probe == -1:
                    assert side.probe_ranks[query, place] == 0
                    assert side.probe_ties[query, place] == 0
                    assert side.probe_scores[query, place] == -np.inf
                else:
                    assert side.probe_ranks[query, place] == reference.rank(table[query], out, probe)
                    assert side.probe_ties[query, place] == reference.ties(table[query], out, probe)
                    won = 1 + sum(
                        table[query][j] > table[query][probe] for j in range(len(table[query])) if j not in out
                    )
                    assert side.probe_ranks[query, place] - side.probe_ties_above[query, place] == won
                    assert side.probe_scores[query, place] == table[query][probe]


@settings(max_examples=60, deadline=None)
@given(
    n_rows=st.integers(1, 14),
    n_columns=st.integers(1, 14),
    dim=st.integers(1, 5),
    k=st.integers(0, 20),
    rate=st.sampled_from([0.0, 0.2, 0.9, 1.0]),
    ties=st.booleans(),
    block_size=st.integers(1, 20),
    seed=st.integers(0, 2**20),
)
def test_search_equals_brute_force(n_rows, n_columns, dim, k, rate, ties, block_size, seed):
    rng = np.random.default_rng(seed)
    draw = tied if ties else random_unit
    rows, columns = draw(rng, n_rows, dim), draw(rng, n_columns, dim)
    matches = random_matches(rng, n_rows, n_columns, rate)
    row_probes = rng.integers(-1, n_columns, size=(n_rows, 2))
    column_probes = rng.integers(-1, n_rows, size=(n_columns, 3))
    found = search_both(
        rows,
        columns,
        k=k,
        matches=matches,
        row_probes=row_probes,
        column_probes=column_probes,
        block_size=block_size,
    )
    assert_equals_reference(rows, columns, matches, k, found, row_probes, column_probes)


@pytest.mark.parametrize("kind", ["random", "tied", "all equal"])
def test_bytes_do_not_depend_on_block_size(kind):
    rng = np.random.default_rng(3)
    if kind == "random":
        rows, columns = random_unit(rng, 70, 48), random_unit(rng, 200, 48)
        columns[100:] = columns[:100]  # every caption twice, far apart
    elif kind == "tied":
        rows, columns = tied(rng, 70, 4), tied(rng, 200, 4)
    else:
        rows, columns = normalise(np.ones((70, 7))), normalise(np.ones((200, 7)))
    matches = random_matches(rng, 70, 200, 0.02)
    probes = {"row_probes": rng.integers(0, 200, size=(70, 2)), "column_probes": rng.integers(0, 70, size=(200, 1))}
    results = [
        search_both(rows, columns, k=9, matches=matches, block_size=size, **probes) for size in (5, 16, 69, 128, 1024)
    ]
    assert len({as_bytes(found) for found in results}) == 1


def test_copies_tie_to_the_last_bit_and_stand_in_index_order():
    rng = np.random.default_rng(7)
    rows, columns = random_unit(rng, 100, 61), random_unit(rng, 301, 61)
    found = search_both(rows, np.concatenate([columns, columns]), k=8, block_size=97).rows
    assert np.array_equal(found.indices[:, 0::2] + 301, found.indices[:, 1::2])
    assert found.scores[:, 0::2].tobytes() == found.scores[:, 1::2].tobytes()


def test_a_row_does_not_depend_on_the_others():
    rng = np.random.default_rng(4)
    rows, columns = random_unit(rng, 40, 33), random_unit(rng, 90, 33)
    whole = search_both(rows, columns, k=5).rows
    for start in (0, 13, 39):
        alone = search_both(rows[start : start + 1], columns, k=5).rows
        assert alone.scores.tobytes() == whole.scores[start].tobytes()
        assert alone.indices.tobytes() == whole.indices[start].tobytes()


def test_scores_are_the_cosines_to_half_a_float32_step():
    rng = np.random.default_rng(5)
    rows, columns = random_unit(rng, 50, 512), random_unit(rng, 60, 512)
    truth = rows.astype(np.float64) @ columns.astype(np.float64).T
    (tile,) = tiles(quantise(rows), quantise(columns), block_size=1024)
    assert np.abs(tile.scores - truth).max() < 4e-8
    row, column = np.divmod(np.arange(3000), 60)
    assert pair_scores(quantise(rows), quantise(columns), row, column).tobytes() == tile.scores.tobytes()


def test_faiss_finds_the_same_sets():
    rng = np.random.default_rng(6)
    rows, columns = random_unit(rng, 500, 64), random_unit(rng, 3000, 64)
    index = faiss.IndexFlatIP(64)
    index.add(columns)
    scores, indices = index.search(rows, 20)
    found = search_both(rows, columns, k=20, block_size=256).rows
    np.testing.assert_allclose(found.scores, scores, atol=1e-6)
    same = [set(a) == set(b) for a, b in zip(found.indices.tolist(), indices.tolist(), strict=True)]
    assert np.mean(same) > 0.99  # faiss's own rounding may swap the last place


def test_k_beyond_the_items_gives_what_there_is():
    found = search_both(np.eye(2), np.eye(2)[[0, 1, 1]], k=10, matches=sparse.csr_array([[1, 0, 1], [0, 0, 0]]))
    assert found.rows.indices.tolist() == [[1, -1, -1], [1, 2, 0]]
    assert found.rows.scores.tolist() == [[0.0, -np.inf, -np.inf], [1.0, 1.0, 0.0]]
    assert found.columns.indices.tolist() == [[1, -1], [1, 0], [1, -1]]


def test_stored_zeros_and_repeated_entries_of_matches():
    matches = sparse.csr_array(
        (np.array([1, 1, 0]), (np.array([0, 0, 0]), np.array([1, 1, 2]))), shape=(1, 3)
    )  # column 1 twice, column 2 an explicit zero
    assert search_both([[1.0]], [[1.0], [1.0], [1.0]], k=3, matches=matches).rows.indices.tolist() == [[0, 2, -1]]


def test_empty_sides():
    found = search_both(np.zeros((0, 3)), np.eye(3), k=2)
    assert found.rows.indices.shape == (0, 2)
    assert found.columns.indices.shape == (3, 0)
    none = best_truths(np.eye(3), np.zeros((0, 3)), sparse.csr_array((3, 0), dtype=bool))
    assert none.rows.tolist() == [-1, -1, -1]


def test_negative_zero_is_zero():
    """Whatever sign the zeros of a sum have, they tie, lower index first."""
    columns = np.array([[-0.0, -0.0], [0.0, 0.0], [-1e-30, 1e-30], [0.0, -0.0]])
    for sign in (1.0, -1.0):
        found = search_both([[sign, 0.0]], columns, k=4).rows
        assert found.indices.tolist() == [[0, 1, 2, 3]]
        assert not np.signbit(found.scores).any()
    assert encode(np.array([-0.0], dtype=np.float32), 5) == encode(np.array([0.0], dtype=np.float32), 5)


def test_best_truths_with_ties_and_without_truth():
    truth = sparse.csr_array([[0, 1, 1, 0], [0, 0, 0, 0]])
    best = best_truths(np.eye(2), [[1, 0], [0, 1], [0, 1], [1, 0]], truth)
    assert best.rows.tolist() == [1, -1]
    assert best.row_scores.tolist() == [0.0, -np.inf]
    assert best.columns.tolist() == [-1, 0, 0, -1]


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**20), n=st.integers(1, 12), m=st.integers(1, 12))
def test_best_truths_equals_brute_force(seed, n, m):
    rng = np.random.default_rng(seed)
    rows, columns, truth = tied(rng, n, 3), tied(rng, m, 3), random_matches(rng, n, m, 0.4)
    best, scores, dense = best_truths(rows, columns, truth), reference.exact_scores(rows, columns), truth.toarray()
    for side, table, pairs in ((best.rows, scores, dense), (best.columns, scores.T, dense.T)):
        for query in range(len(table)):
            order = reference.order(table[query], set(np.flatnonzero(~pairs[query])))
            assert side[query] == (order[0] if order else -1)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused(bad):
    broken = np.eye(3)
    broken[2, 1] = bad
    with pytest.raises(DataError, match=r"row embeddings: row 2 holds NaN or infinity"):
        search_both(broken, np.eye(3), k=1)
    with pytest.raises(DataError, match="column embeddings: row 2"):
        search_both(np.eye(3), broken, k=1)
    with pytest.raises(DataError, match="row 2"):
        normalise(broken)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((2 * np.eye(2), np.eye(2)), {}, DataError, "row 0 has norm 2, must be at most 1: normalise"),
        ((np.eye(2), np.eye(3)), {}, DataError, "dim 2, column embeddings dim 3"),
        ((np.ones(2), np.eye(2)), {}, DataError, "must be numbers of shape"),
        ((np.array([["a"]]), np.eye(2)), {}, DataError, "must be numbers of shape"),
        ((np.eye(2), np.eye(2)), {"k": -1}, ConfigError, "k: must be at least 0, not -1"),
        ((np.eye(2), np.eye(2)), {"block_size": 0}, ConfigError, "block_size: must be at least 1, not 0"),
        ((np.eye(2), np.eye(2)), {"matches": sparse.csr_array((2, 3))}, DataError, "there are 2 rows and 2 columns"),
        ((np.eye(2), np.eye(2)), {"row_probes": np.array([[2], [0]])}, DataError, "row_probes: must be -1 or an index"),
        ((np.eye(2), np.eye(2)), {"column_probes": np.array([0, 1])}, DataError, "column_probes: must have shape"),
    ],
)
def test_bad_arguments(arguments, options, error, message):
    with pytest.raises(error, match=message):
        search_both(*arguments, **{"k": 1, **options})


def test_normalise():
    unit = normalise(np.array([[1e-30, 0], [3e30, 4e30], [0, 0]]))
    np.testing.assert_allclose(unit, [[1, 0], [0.6, 0.8], [0, 0]], rtol=1e-6)
    assert unit.dtype == np.float32
    read_only = np.eye(2)
    read_only.setflags(write=False)
    assert search_both(read_only, read_only.astype(np.float16), k=1).rows.indices.tolist() == [[0], [1]]


def test_columns_may_have_lists_of_another_length():
    rng = np.random.default_rng(0)
    rows, columns = normalise(rng.standard_normal((6, 4))), normalise(rng.standard_normal((9, 4)))
    both, fewer = search_both(rows, columns, k=4), search_both(rows, columns, k=4, column_k=1)
    assert fewer.rows.indices.tolist() == both.rows.indices.tolist()
    assert fewer.columns.indices.tolist() == both.columns.indices[:, :1].tolist()
