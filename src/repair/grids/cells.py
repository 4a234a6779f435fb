"""The six cells of a grid that must be false: which were verified, which are only assumed."""

from collections.abc import Iterable

from repair.core.records import Grid, Link, LinkKind, Modality


def off_diagonal(grid: Grid) -> tuple[tuple[str, str], ...]:
    """The six (image key, text key) pairs that must not match, row by row."""
    return tuple(
        (image, text)
        for row, image in enumerate(grid.images)
        for column, text in enumerate(grid.texts)
        if row != column
    )


def assumed_cells(grids: Iterable[Grid], links: Iterable[Link]) -> list[tuple[str, str]]:
    """The distinct off-diagonal pairs that no negative link vouches for, sorted: what a cell check would ask about."""
    verified = set()
    for link in links:
        if link.kind is LinkKind.NEGATIVE:
            pair = (link.anchor_key, link.target_key)
            verified.add(pair if link.anchor_modality is Modality.IMAGE else pair[::-1])
    return sorted({pair for grid in grids for pair in off_diagonal(grid)} - verified)
