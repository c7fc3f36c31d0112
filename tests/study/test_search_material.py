"""What a search trains on: the base classes, divided as a training on the whole pack divides them."""

from pathlib import Path

from abomed.data.packed import open_pack
from abomed.engine.material import choose_split, divide
from abomed.study.search_plan import base_material
from tests.oracles.engine import make_pack
from tests.study.searching import plan_search


def test_base_material_is_divided_as_the_whole_would_be(tmp_path: Path) -> None:
    pack = make_pack(tmp_path)
    plan = plan_search(pack, tmp_path / "search", ("inner.lr_z=0.01,0.1",))
    opened = open_pack(pack)
    whole = divide(opened, choose_split(opened, None, 10), 10)
    base = base_material(tmp_path / "search", plan, 10)
    for part in ("train", "validation"):
        theirs, ours = (
            [each.pack.header.paths[row] for row in getattr(each.parts, part)] for each in (whole, base)
        )
        assert ours == theirs
    assert len(base.parts.novel) == 0
