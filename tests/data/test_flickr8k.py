"""The real photos, where they are at hand: `../shared/data/flickr8k`, or below the folder that REPAIR_DATA names."""

import os
from collections import Counter
from pathlib import Path

import pytest

from repair.core.images import decode
from repair.data.jsonl import jsonl_source
from repair.data.rules import Rules

ROOT = Path(os.environ.get("REPAIR_DATA", Path(__file__).parents[2].parent / "shared" / "data")) / "flickr8k"


@pytest.mark.data
@pytest.mark.skipif(not ROOT.is_dir(), reason=f"no measuring data at {ROOT}")
def test_all_photos_load() -> None:
    source = jsonl_source(path=ROOT / "captions.jsonl", rules=Rules(check="header"))
    assert {name: len(source.pairs(name)) for name in source.splits()} == {
        "train": 30_000,
        "val": 5_000,
        "judged": 2_000,
    }
    assert source.set_aside == ()
    per_image = Counter(pair.image_id for name in source.splits() for pair in source.pairs(name))
    assert len(per_image) == 7_400
    assert set(per_image.values()) == {5}
    first = source.pairs("judged")[0].image_id
    assert decode(source.read_image(first), where=first).size == (224, 224)
