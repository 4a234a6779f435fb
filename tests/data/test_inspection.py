"""Findings about image files are right at once, and stay right when files change."""

import os
from pathlib import Path

import pytest

from repair.core.errors import StoreError
from repair.core.identity import hash_bytes
from repair.core.images import MAX_PIXELS
from repair.data import inspection
from repair.data.inspection import ImageFacts, inspect_images
from tests.data.files import encoded, picture, write_images


def inspect(root: Path, *ids: str, cache: Path | None = None, full: bool = True, **options: int) -> list[ImageFacts]:
    options = {"max_pixels": MAX_PIXELS, "n_workers": 2, **options}
    return inspect_images(ids, root=root, full=full, cache=cache, **options)


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files count as settled at once."""
    monkeypatch.setattr(inspection, "SETTLE_S", -1.0)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of images whose heads were read."""
    seen: list[str] = []
    real = inspection.read_header

    def read_header(data: bytes, *, where: str) -> object:
        seen.append(where)
        return real(data, where=where)

    monkeypatch.setattr(inspection, "read_header", read_header)
    return seen


def test_facts(tmp_path: Path) -> None:
    write_images(tmp_path, "a.png", "b.png")
    (tmp_path / "torn.png").write_bytes(encoded(picture((64, 64)))[:2000])
    (tmp_path / "text.png").write_bytes(b"hello")
    (tmp_path / "folder.png").mkdir()
    a, b, torn, text, folder, gone = inspect(
        tmp_path, "a.png", "b.png", "torn.png", "text.png", "folder.png", "gone.png"
    )
    assert (a.problem, a.width, a.height) == (None, 8, 6)
    assert a.digest == hash_bytes((tmp_path / "a.png").read_bytes()) != b.digest
    assert str(torn.problem).startswith("broken or cut short")
    assert str(text.problem).startswith("not an image file")
    assert folder.problem == "cannot be read: Is a directory"
    assert gone.problem == "no such file"


def test_workers_make_no_difference(tmp_path: Path) -> None:
    names = [f"{n}.png" for n in range(20)]
    write_images(tmp_path, *names)
    assert inspect(tmp_path, *names, n_workers=1) == inspect(tmp_path, *names, n_workers=7)


def test_a_torn_file_is_found_even_by_its_head_alone(tmp_path: Path) -> None:
    data = encoded(picture((64, 64)), "JPEG")
    (tmp_path / "a.jpg").write_bytes(data[:-200])
    assert str(inspect(tmp_path, "a.jpg", full=False)[0].problem).startswith("broken or cut short")


def test_known_files_are_not_opened_again(tmp_path: Path, settled: None, opened: list[str]) -> None:
    write_images(tmp_path / "photos", "a.png", "b.png")
    first = inspect(tmp_path / "photos", "a.png", "b.png", cache=tmp_path)
    assert sorted(opened) == ["a.png", "b.png"]
    assert inspect(tmp_path / "photos", "b.png", "a.png", cache=tmp_path) == first[::-1]
    assert len(opened) == 2


@pytest.mark.parametrize("same_time", [True, False])
def test_a_changed_file_is_opened_again(tmp_path: Path, settled: None, opened: list[str], same_time: bool) -> None:
    """Also one of equal size whose modification time was put back: its change time tells."""
    path = tmp_path / "photos" / "a.bmp"
    path.parent.mkdir()
    path.write_bytes(encoded(picture(seed=0), "BMP"))
    stat = path.stat()
    first = inspect(path.parent, "a.bmp", cache=tmp_path)
    path.write_bytes(encoded(picture(seed=1), "BMP"))
    if same_time:
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    second = inspect(path.parent, "a.bmp", cache=tmp_path)
    assert second[0].digest == hash_bytes(path.read_bytes()) != first[0].digest
    assert len(opened) == 2


def test_files_that_changed_just_now_are_not_remembered(tmp_path: Path, opened: list[str]) -> None:
    write_images(tmp_path / "photos", "a.png")
    for _ in range(2):
        inspect(tmp_path / "photos", "a.png", cache=tmp_path)
    assert len(opened) == 2


def test_a_head_check_does_not_stand_for_a_full_one(tmp_path: Path, settled: None) -> None:
    data = bytearray(encoded(picture((64, 64))))
    data[len(data) // 2] ^= 255  # the end marker is there
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.png").write_bytes(data)
    assert inspect(tmp_path / "photos", "a.png", cache=tmp_path, full=False)[0].problem is None
    assert inspect(tmp_path / "photos", "a.png", cache=tmp_path, full=True)[0].problem is not None
    assert inspect(tmp_path / "photos", "a.png", cache=tmp_path, full=False)[0].problem is not None


def test_the_pixel_limit_may_change(tmp_path: Path, settled: None) -> None:
    write_images(tmp_path / "photos", "a.png")
    small = inspect(tmp_path / "photos", "a.png", cache=tmp_path, max_pixels=10)
    assert str(small[0].problem).startswith("8 × 6 pixels, more than max_pixels = 10")
    assert inspect(tmp_path / "photos", "a.png", cache=tmp_path, max_pixels=48)[0].problem is None


@pytest.mark.parametrize("content", ["", "{", "[]", '{"version": 1}', '{"version": [1, "?"], "images": {}}'])
def test_a_damaged_cache_counts_as_none(tmp_path: Path, settled: None, opened: list[str], content: str) -> None:
    write_images(tmp_path / "photos", "a.png")
    first = inspect(tmp_path / "photos", "a.png", cache=tmp_path)
    (file,) = (tmp_path / "images").glob("*.json")
    whole = file.read_text()
    file.write_text(content)
    assert inspect(tmp_path / "photos", "a.png", cache=tmp_path) == first
    assert len(opened) == 2
    assert file.read_text() == whole


def test_a_cache_that_cannot_be_written_is_one_clear_error(tmp_path: Path, settled: None) -> None:
    write_images(tmp_path / "photos", "a.png")
    (tmp_path / "cache").write_text("a file where a folder should be")
    with pytest.raises(StoreError, match="cannot write"):
        inspect(tmp_path / "photos", "a.png", cache=tmp_path / "cache")
