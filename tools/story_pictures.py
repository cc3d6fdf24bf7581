"""Takes pictures of the page at five moments of the tenants' story, light, dark and on a phone.

    make pictures

Run it manually, because pictures differ between browsers.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.api.test_tenants_story import BROKEN, Story, told_in
from tests.page.browser import Browser
from tests.page.test_page import fill
from tools.pictures import PICTURES

#: Moment of the story -> who looks, the view, and a text of it.
MOMENTS = {
    "choice": ("shop", "#/home", "Choose by"),
    "emergency": ("shop", "#/home", "coolant leak"),
    "validation": ("olga", "#/operations/{stuck}", "no link"),
    "deadline": ("bank", "#/home", "Choose by"),
    "availability": ("shop", "#/availability", "%"),
}
WIDE, NARROW = (1200, 800), (390, 844)
LOOKS = (("light", "light", WIDE), ("dark", "dark", WIDE), ("phone", "light", NARROW))


def main() -> None:
    """Write every picture."""
    browser = Browser(width=WIDE[0], height=WIDE[1])
    with tempfile.TemporaryDirectory() as folder:
        try:
            for _ in told_in(Path(folder), lambda *of: take(browser, *of)):
                pass
        finally:
            browser.open("about:blank")
            browser.close()


def take(browser: Browser, moment: str, story: Story) -> None:
    """Write the pictures of one moment, as one person sees it."""
    who, view, text = MOMENTS[moment]
    if "{" in view:
        view = view.format(stuck=story.operation(BROKEN)["id"])
    url = f"{story.live.url}/{view}"
    browser.open("about:blank")
    browser.open(url)
    browser.run("localStorage.clear(); sessionStorage.clear()")
    browser.open("about:blank")
    browser.open(url)
    fill(browser, "mouse", "#token", story.tokens[who])
    browser.key("Enter")
    browser.see(text)
    for look, theme, size in LOOKS:
        browser.run(f"document.documentElement.dataset.theme = '{theme}'")
        browser.resize(*size, phone=size is NARROW)
        browser.until("document.getAnimations().length === 0")
        browser.picture(PICTURES / f"story-{moment}-{look}.webp")
    browser.resize(*WIDE)


if __name__ == "__main__":
    main()
