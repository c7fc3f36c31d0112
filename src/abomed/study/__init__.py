"""The paper's experiments as data: grids of cells, a runner that never computes one twice, tables, a page."""
