"""The page in a real browser: light, dark, on a phone, on paper, and to a screen reader.

The pictures stay in `.cache/reports`, for whoever wants to look.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

from ackd_reports.render.html import as_html
from tests.integration.reports.conftest import World
from tests.support import chromium
from tests.support.paths import CACHE
from tests.support.require import require

PICTURES = CACHE / "reports"
CONTRAST_MIN = 4.5
"""WCAG 2.2, 1.4.3 (level AA)."""
COLOURS = """(() => {
  const seen = new Map();
  const behind = (each) => {
    for (; each; each = each.parentElement) {
      const colour = getComputedStyle(each).backgroundColor;
      if (colour !== 'rgba(0, 0, 0, 0)') return colour;
    }
    return 'rgb(255, 255, 255)';
  };
  for (const each of document.querySelectorAll('body *')) {
    const text = [...each.childNodes].some(n => n.nodeType === 3 && n.data.trim());
    if (!text || each.closest('svg style, .skip')) continue;
    const style = getComputedStyle(each);
    const ink = each.closest('svg') && each.tagName === 'text' ? style.fill : style.color;
    seen.set(ink + '|' + behind(each), each.tagName + ': ' + each.textContent.slice(0, 40));
  }
  return [...seen].map(([colours, where]) => [...colours.split('|'), where]);
})()"""

FIGURES = """[...document.querySelectorAll('figure svg')].map(each => {
  const box = each.getBoundingClientRect();
  return [box.left, box.top + scrollY, box.right, box.bottom + scrollY].map(Math.round);
})"""


def luminance(colour: str) -> float:
    """Relative luminance of `rgb(r, g, b)`, as WCAG 2.2 has it."""
    parts = [float(each) / 255 for each in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    red, green, blue = (
        each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """1 to 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def brightness(picture: Path, box: list[int] | None = None) -> float:
    """0 black to 1 white, of most of the picture or of a box in it (left, top, right, bottom); one
    colour alone is no page.
    """
    pixels = imread(picture)[:, :, :3]
    if box is not None:
        left, top, right, bottom = box
        pixels = pixels[top:bottom, left:right]
    assert np.ptp(pixels) > 0.5
    return float(np.median(pixels))


async def colours_told_apart(page: chromium.Page) -> None:
    """Every text against what is behind it."""
    found = await page.value(COLOURS)
    assert len(found) > 1
    poor = [(where, ink, back) for ink, back, where in found if contrast(ink, back) < CONTRAST_MIN]
    assert not poor, poor


@pytest.mark.timeout(300)
async def test_light_dark_phone_paper_and_screen_reader(world: World, tmp_path: Path) -> None:
    require(chromium.missing())
    path = tmp_path / "report.html"
    path.write_text(as_html(world.report))
    async with chromium.page() as page:
        await page.like(width=1280)
        await page.open(path.as_uri())
        bright = brightness(await page.picture(PICTURES / "light.png"))
        await colours_told_apart(page)
        await page.like(width=1280, dark=True)
        dark = brightness(await page.picture(PICTURES / "dark.png"))
        await colours_told_apart(page)
        for box in await page.value(FIGURES):
            assert brightness(PICTURES / "dark.png", box) < 0.2, "a plot is a bright hole"
        assert bright > 0.9
        assert dark < 0.2
        await page.like(width=390)
        await page.picture(PICTURES / "phone.png")
        # Tables scroll inside their own boxes.
        assert await page.value("document.documentElement.scrollWidth") <= 390
        await page.like(width=800, paper=True, dark=True)
        assert brightness(await page.picture(PICTURES / "print.png")) > 0.9
        assert await page.value("getComputedStyle(document.querySelector('.skip')).display") == (
            "none"
        )
        paper = await page.paper()
        assert paper.startswith(b"%PDF")
        assert paper.count(b"/Type /Page\n") >= 2
        tree = (await page.do("Accessibility.getFullAXTree"))["nodes"]
        assert page.errors == []
        assert page.addresses == [path.as_uri()]
    heard = [(_text(each, "role"), _text(each, "name")) for each in tree if not each["ignored"]]
    roles = [role for role, _ in heard]
    assert roles.count("main") == roles.count("banner") == 1
    plots = [name for role, name in heard if role in ("image", "img")]
    assert len(plots) >= 2
    assert all(plots)
    assert all(name for role, name in heard if role in ("table", "region", "heading", "link"))


def _text(node: dict[str, Any], what: str) -> str:
    return str(node.get(what, {}).get("value", ""))
