"""Contact sheets: every class has its row, its tiles are its images, and one patient does not fill it."""

import numpy as np
import pytest
import torch
from PIL import Image

from abomed.config.data import PackSettings
from abomed.config.episodes import EpisodeSpec
from abomed.config.synthetic import SyntheticSettings
from abomed.data.pack import write_pack
from abomed.data.packed import Pack, open_pack
from abomed.data.synthetic_source import synthetic_manifest
from abomed.episodes import class_table, draw_episodes
from abomed.report.figures import GAP, LABEL_WIDTH, Row, contact_sheet, draw_sheet, episode_sheet, to_png


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Pack:
    settings = SyntheticSettings(
        size=32,
        images_per_class=8,
        groups_per_class=4,
        classes=("mitotic_figures", "vacuolated", "gland_rings"),
    )
    out = tmp_path_factory.mktemp("pack") / "tiny.safetensors"
    write_pack(synthetic_manifest(settings), out, pack=PackSettings(size=settings.size))
    return open_pack(out)


def test_tiles_stand_where_they_should() -> None:
    images = torch.zeros(2, 3, 10, 10, dtype=torch.uint8)
    images[1, 0] = 255
    sheet = np.asarray(draw_sheet([Row("a", images), Row("b", images.flip(0))], side=20))
    assert sheet.shape == (2 * 24 + 4, LABEL_WIDTH + 2 * 24 + 4, 3)
    left, right = LABEL_WIDTH + GAP + 10, LABEL_WIDTH + GAP + 34
    assert sheet[14, left].tolist() == [0, 0, 0]
    assert sheet[14, right].tolist() == [255, 0, 0]
    assert sheet[38, left].tolist() == [255, 0, 0]


def test_contact_sheet_shows_every_class_and_spreads_over_patients(pack: Pack) -> None:
    sheet = contact_sheet(pack, columns=4, side=32)
    assert sheet.size == (LABEL_WIDTH + 4 * 36 + 4, 3 * 36 + 4)
    tiles = np.asarray(sheet)
    for row in range(3):
        first = LABEL_WIDTH + GAP
        seen = [
            tiles[GAP + row * 36 : GAP + row * 36 + 32, first + c * 36 : first + c * 36 + 32]
            for c in range(4)
        ]
        sources = [int(match) for tile in seen for match in _find(pack, tile)]
        assert {int(pack.labels[i]) for i in sources} == {row}
        assert len({int(pack.groups[i]) for i in sources}) == 4


def test_episode_sheet_shows_support_above_query(pack: Pack) -> None:
    spec = EpisodeSpec(ways=2, shots=1, queries=2)
    table = class_table(pack.labels, pack.class_names, groups=pack.groups)
    episodes = draw_episodes(table, spec, seed=0, stream="test", first=0, count=1)
    tiles = np.asarray(episode_sheet(pack, episodes, side=32))
    first = LABEL_WIDTH + GAP
    assert _find(pack, tiles[GAP : GAP + 32, first : first + 32]) == episodes.support[0, 0].tolist()
    assert _find(pack, tiles[GAP + 36 : GAP + 68, first : first + 32]) == episodes.query[0, 0, :1].tolist()


def test_png_is_a_picture() -> None:
    data = to_png(Image.new("RGB", (3, 2), "red"))
    assert data.startswith(b"\x89PNG")


def _find(pack: Pack, tile: np.ndarray) -> list[int]:
    """Which images of the pack equal this tile, drawn at their own size."""
    images = pack.load().permute(0, 2, 3, 1).numpy()
    return [i for i in range(len(images)) if np.array_equal(images[i], tile)]
