"""Grid (Locality): 3 × 3 contrasts drawn from the links, anew each epoch."""

from repair.grids.cells import assumed_cells, off_diagonal
from repair.grids.sampler import GridSample, GridSummary, sample_grids

__all__ = ["GridSample", "GridSummary", "assumed_cells", "off_diagonal", "sample_grids"]
