"""Links from a page to a file outside of docs/ lead to a copy of that file in the site.

A link such as `../src/indextables/errors.py` works in a checkout. MkDocs knows only files under docs/, so the linked
files are added to the site as plain text, and the links are rewritten. A link to nothing stays, and MkDocs reports it.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_LINK = re.compile(r"\]\((?!https?:|#)(\.\./[^)#\s]+)\)")
_FOLDER = "source"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add every file that a page links to and that is not under docs/."""
    root = Path(config.docs_dir).parent
    for page in list(files.documentation_pages()):
        for target in _LINK.findall(page.content_string):
            outside = _outside(page.src_uri, target)
            name = None if outside is None else _name(outside)
            if outside is not None and name not in files.src_uris and (root / outside).is_file():
                files.append(File.generated(config, str(name), content=(root / outside).read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links at the copies."""
    del config

    def rewritten(match: re.Match[str]) -> str:
        outside = _outside(page.file.src_uri, match[1])
        name = None if outside is None else _name(outside)
        if name not in files.src_uris:
            return match[0]
        return f"]({posixpath.relpath(str(name), posixpath.dirname(page.file.src_uri))})"

    return _LINK.sub(rewritten, markdown)


def _outside(page: str, target: str) -> str | None:
    """The path from the root of the project; None if the link stays under docs/."""
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), target))
    return None if path.startswith(("docs/", "..")) else path


def _name(outside: str) -> str:
    return f"{_FOLDER}/{outside}.txt"
