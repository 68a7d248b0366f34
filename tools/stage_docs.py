#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gather what the site is made of, so that pages can be read in the source tree and on the site.

    stage_docs.py FOLDER          copy docs/, the READMEs and what they link to; write mkdocs.yml
    stage_docs.py --check SITE    does every link of the built site lead to a file?

Links between pages are rewritten for their places on the site. A linked file that is not a page is
copied below source/; a linked folder becomes a page that lists its files.
"""

import os
import re
import shutil
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import yaml

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    "README.md": "index.md",
    "docs/README.md": "pages.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
FENCE = re.compile(r"(```.*?```|`[^`\n]*`)", re.DOTALL)


class Stage:
    def __init__(self, folder):
        self.folder = folder
        self.done = set()

    def place(self, path):
        """Where a file or folder of the source tree is on the site."""
        if path in PAGES:
            return PAGES[path]
        if path.startswith("docs/"):
            place = path.removeprefix("docs/")
        elif re.fullmatch(r"examples/\w+/README\.md", path):
            place = f"examples/{path.split('/')[1]}.md"
        else:
            place = f"source/{path}"
        if (ROOT / path).is_dir():
            return f"{place}/index.md"
        if place.endswith("/README.md"):
            return place.removesuffix("README.md") + "index.md"
        return place if place.endswith((".md", ".svg", ".png", ".css")) else f"{place}.txt"

    def link(self, page, target):
        path, anchor = target.partition("#")[::2]
        if not path or re.match(r"[a-z]+:", target):
            return target
        real = (ROOT / page).parent / path
        if not real.exists():
            raise SystemExit(f"{page}: there is no {target}")
        if (real / "README.md").exists():
            real = real / "README.md"
        name = str(real.resolve().relative_to(ROOT))
        self.add(name)
        place = os.path.relpath(self.place(name), os.path.dirname(self.place(page)) or ".")
        return place + ("#" + anchor if anchor else "")

    def add(self, path):
        if path in self.done:
            return
        self.done.add(path)
        source, target = ROOT / path, self.folder / self.place(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            names = sorted(p.name for p in source.iterdir() if p.name != "__pycache__")
            files = [name for name in names if (source / name).is_file()]
            listed = "".join(f"* [{n}]({self.link(path + '/x', n)})\n" for n in files)
            target.write_text(f"# {path}\n\n{listed}", encoding="utf-8")
        elif path.endswith(".md"):
            text = source.read_text(encoding="utf-8")
            parts = FENCE.split(text)
            for i in range(0, len(parts), 2):
                parts[i] = LINK.sub(lambda m: m[1] + self.link(path, m[2]) + m[3], parts[i])
            target.write_text("".join(parts), encoding="utf-8")
        else:
            shutil.copyfile(source, target)


def shown(nav, folder):
    """The navigation without pages that do not exist."""
    kept = []
    for entry in nav:
        title, value = next(iter(entry.items()))
        if isinstance(value, list):
            value = shown(value, folder)
        elif not (folder / value).exists():
            continue
        if value:
            kept.append({title: value})
    return kept


def stage(folder):
    shutil.rmtree(folder, ignore_errors=True)
    pages = folder / "pages"
    pages.mkdir(parents=True)
    staged = Stage(pages)
    for path in PAGES:
        staged.add(path)
    for path in sorted((ROOT / "docs").rglob("*")):
        if path.is_file() and path.suffix in (".md", ".svg", ".png", ".css"):
            staged.add(str(path.relative_to(ROOT)))
    for path in sorted((ROOT / "examples").glob("*/README.md")):
        staged.add(str(path.relative_to(ROOT)))
    config = yaml.safe_load((ROOT / "docs" / "mkdocs.yml").read_text(encoding="utf-8"))
    config["nav"] = shown(config["nav"], pages)
    config["docs_dir"] = str(pages)
    for plugin in config["plugins"]:
        if "mkdocstrings" in plugin:
            plugin["mkdocstrings"]["handlers"]["python"]["paths"] = [str(ROOT / "python")]
    (folder / "mkdocs.yml").write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")


class Links(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.links, self.names, self.fetched = [], set(), []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("href", "src") and value:
                self.links.append(value)
            if name == "src" and value and urlsplit(value).netloc:
                self.fetched.append(value)
            if name in ("id", "name") and value:
                self.names.add(value)


def check(site):
    pages = {path: Links(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    bad = []
    for path, page in pages.items():
        if path.name == "404.html":
            continue
        bad += [f"{path.relative_to(site)}: fetches {url}" for url in page.fetched]
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or link.startswith("/"):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target = target / "index.html"
            is_page = target in pages and not parts.fragment.startswith("__")
            is_named = not parts.fragment or not is_page
            if not is_named:
                is_named = unquote(parts.fragment) in pages[target].names
            if not target.exists() or not is_named:
                bad.append(f"{path.relative_to(site)}: {link}")
    if bad:
        raise SystemExit(
            "links that lead nowhere, and scripts from elsewhere:\n"
            + "\n".join(sorted(set(bad))[:40])
        )
    print(f"docs: {len(pages)} pages, {sum(len(p.links) for p in pages.values())} links checked")


def main():
    if sys.argv[1] == "--check":
        check(Path(sys.argv[2]).resolve())
    else:
        stage(Path(sys.argv[1]).resolve())


if __name__ == "__main__":
    main()
