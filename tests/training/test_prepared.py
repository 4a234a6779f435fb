import numpy as np
import pytest

from repair.core.errors import DataError
from repair.training.prepared import Prepared


def test_rows_come_by_key_from_all_parts_in_the_order_asked(tmp_path):
    stored = np.lib.format.open_memmap(tmp_path / "a.npy", mode="w+", dtype=np.uint8, shape=(3, 2))
    stored[:] = [[0, 1], [2, 3], [4, 5]]
    stored.flush()
    on_disk = np.load(tmp_path / "a.npy", mmap_mode="r")
    prepared = Prepared(
        (["a", "b", "c"], on_disk), (["d", "a"], np.array([[9, 9], [7, 7]], dtype=np.uint8)), what="image"
    )
    taken = prepared.take(["d", "b", "a", "b"])
    assert taken.tolist() == [[9, 9], [2, 3], [0, 1], [2, 3]]
    taken += 1  # a copy, so what is on disk stays
    assert on_disk.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert prepared.take([]).shape == (0, 2)
    assert prepared.missing(["z", "a", "y", "y"]) == ["y", "z"]


def test_what_does_not_fit_is_refused():
    zeros = np.zeros((2, 3), dtype=np.float32)
    with pytest.raises(DataError, match="image x was not prepared"):
        Prepared((["a", "b"], zeros), what="image").take(["a", "x"])
    with pytest.raises(DataError, match="1 keys for 2 rows"):
        Prepared((["a"], zeros), what="image")
    with pytest.raises(DataError, match="beside rows of float32"):
        Prepared((["a", "b"], zeros), (["c"], np.zeros((1, 3))), what="image")
