"""Hook of mkdocs: links that work in the source tree also work in the site.

Files of the project outside docs/ that pages link to become part of the site: a Markdown file as a page, any other file
as a copy.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
ICON = "edge/web/favicon.svg"
LINK = re.compile(r"\[([^]\[]*)\]\(([^)#:\s]+)(#[^)\s]*)?\)")
TITLE = re.compile(r"^# (.+)$", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the linked files of the project, and the icon of the gateway's web page."""
    files.append(File.generated(config, "assets/favicon.svg", abs_src_path=str(ROOT / ICON)))
    waiting = [f"docs/{page.src_uri}" for page in files.documentation_pages()]
    seen = set(waiting)
    while waiting:
        source = waiting.pop()
        for _, target, _ in LINK.findall((ROOT / source).read_text(encoding="utf-8")):
            path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
            if path in seen or path.startswith(("docs/", "../")) or not (ROOT / path).is_file():
                continue
            seen.add(path)
            files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
            # Other files are copied as they are, so only pages can lead to further files.
            if path.endswith(".md"):
                waiting.append(path)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite links between docs/ and the rest of the project to the paths that the files have in the site.

    A link whose text is the name of a file, which suits a reader of the source, gets the title of the page.
    """
    source = page.file.src_uri if page.file.generated_by else f"docs/{page.file.src_uri}"

    def rewritten(match: re.Match[str]) -> str:
        text, target, anchor = match.groups()
        file = files.get_file_from_path(
            posixpath.normpath(posixpath.join(posixpath.dirname(source), target)).removeprefix("docs/")
        )
        if file is None:
            return match[0]
        if text.endswith(".md") and (title := TITLE.search(file.content_string)):
            text = title[1]
        return f"[{text}]({posixpath.relpath(file.src_uri, posixpath.dirname(page.file.src_uri) or '.')}{anchor or ''})"

    return LINK.sub(rewritten, markdown)
