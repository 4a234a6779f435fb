import random
import sqlite3
from pathlib import Path

import pytest

from repair.core.errors import StoreError
from repair.core.identity import hash_bytes
from repair.store.blobs import BlobStore


def test_bytes_come_back_by_their_hash(tmp_path: Path) -> None:
    data = [b"", b"a", bytes(range(256)) * 300]
    with BlobStore.open(tmp_path / "blobs.sqlite") as store:
        digests = store.put_many([*data, b"a"])
        assert digests == [hash_bytes(each) for each in (*data, b"a")]
        assert [store.get(digest) for digest in digests] == [*data, b"a"]
        assert store.get(hash_bytes(b"absent")) is None
        assert store.size() == (3, 1 + 256 * 300)
        assert list(store.digests()) == sorted(set(digests))
    with BlobStore.view(tmp_path / "blobs.sqlite") as view:
        assert view.get(digests[2]) == data[2]
        with pytest.raises(StoreError, match="for reading only"):
            view.put(b"x")


@pytest.mark.parametrize("torn", [b"whol", b"whole.", b"", "whole"])
def test_a_torn_blob_counts_as_absent_and_is_mended_by_the_next_put(tmp_path: Path, torn: bytes | str) -> None:
    path = tmp_path / "blobs.sqlite"
    with BlobStore.open(path) as store:
        digest = store.put(b"whole").result()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE blobs SET data = ?", (torn,))
    connection.close()
    with BlobStore.open(path) as store:
        assert store.get(digest) is None
        assert store.put(b"whole").result() == digest
        assert store.get(digest) == b"whole"


def test_a_reader_sees_what_another_connection_has_written(tmp_path: Path) -> None:
    with BlobStore.open(tmp_path / "b") as store, BlobStore.view(tmp_path / "b") as view:
        digest = store.put(b"new").result()
        assert view.get(digest) == b"new"


def test_a_closed_store_refuses(tmp_path: Path) -> None:
    store = BlobStore.open(tmp_path / "blobs.sqlite")
    store.close()
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.put(b"x")


def test_a_cut_file_is_refused_or_gives_whole_blobs_only(tmp_path: Path) -> None:
    path = tmp_path / "blobs.sqlite"
    rng = random.Random(3)
    data = [rng.randbytes(3000) for _ in range(40)]
    with BlobStore.open(path) as store:
        digests = store.put_many(data)
    whole = path.read_bytes()
    for length in [1, 99, *(rng.randrange(len(whole)) for _ in range(25))]:
        path.write_bytes(whole[:length])
        try:
            with BlobStore.view(path) as view:
                found = [view.get(digest) for digest in digests]
        except StoreError:
            continue
        assert all(each is None or each == right for each, right in zip(found, data, strict=True))
