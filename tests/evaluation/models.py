"""Small models of the evaluation's Embedder port whose scores a test can choose, and pictures to go with them."""

import numpy as np

from repair.core.identity import hash_bytes
from repair.core.ports import ImageItem
from repair.numerics.cosines import normalise

UNCERTAINTY = {"confidence": 0.95, "n_resamples": 50, "seed": 0}


class TableModel:
    """Vectors by name of a picture (its key) and by text; what is not in the table is drawn from its name."""

    def __init__(self, images=None, texts=None, dim=8):
        self.tables = {"image": dict(images or {}), "text": dict(texts or {})}
        self.dim = dim

    def images(self, items, *, label):
        return self._rows("image", [item.key for item in items])

    def texts(self, texts, *, label):
        return self._rows("text", texts)

    def n_cut(self, texts):
        return 0

    def _rows(self, kind, names):
        rows = [self.tables[kind].get(name, self._drawn(kind, name)) for name in names]
        return normalise(np.array(rows, dtype=np.float32))

    def _drawn(self, kind, name):
        digest = hash_bytes(f"{kind} {name}".encode())
        return np.random.default_rng(int(digest[3:18], 16)).standard_normal(self.dim)


class AllAlike(TableModel):
    """Every picture and every text has one vector: all scores tie."""

    def _drawn(self, kind, name):
        return np.ones(self.dim)


class NamedPictures:
    """Pictures that are there by name; `gone` are not."""

    def __init__(self, gone=()):
        self.gone = set(gone)

    def missing(self, names):
        return sorted(set(names) & self.gone)

    def item(self, name, box=None):
        key = name if box is None else f"{name} {box}"
        return ImageItem(key=key, content_hash=hash_bytes(key.encode()), captions=(), read=lambda: b"")

    def facts(self):
        return {"kind": "folder", "root": "."}
