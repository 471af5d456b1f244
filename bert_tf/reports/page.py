"""A page for people, in one file: its template and the look that all pages share."""

import html

_STYLE = """
:root { color-scheme: light dark; --paper: #f4f6f8; --panel: #fff; --ink: #1c2733; --faint: #66727f;
  --line: #dfe4e9; --right: #ddeefa; --wrong: #fde3d7; --alarm: #fdecea; --alarm-line: #f0b6ae;
  --for: 43 124 191; --against: 217 119 63; }
@media (prefers-color-scheme: dark) { :root { --paper: #14191f; --panel: #1e252d; --ink: #e4e9ee;
  --faint: #98a4b0; --line: #36404a; --right: #1f4a6b; --wrong: #6b3620; --alarm: #4a211d;
  --alarm-line: #8a443b; --for: 66 150 222; --against: 222 122 62; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 32px 24px 64px; }
h1 { font-size: 26px; margin: 0 0 16px; overflow-wrap: anywhere; }
h2 { font-size: 18px; margin: 36px 0 12px; }
article, .panel { background: var(--panel); border: 1px solid var(--line); border-radius: 8px; }
article { margin: 0 0 10px; padding: 12px 16px; }
.note { color: var(--faint); margin: 12px 0; }
.text { margin: 8px 0 0; white-space: pre-wrap; overflow-wrap: anywhere; }
.for, .against { border-radius: 4px; padding: 1px 0; color: var(--ink); }
.for { background: rgb(var(--for) / var(--share)); }
.against { background: rgb(var(--against) / var(--share)); }
"""


def page(title: str, parts: list[str], style: str = "") -> str:
    """The page of a title, which is text, and of parts, which are HTML; ``style`` is its own look.

    >>> page("a < b", ["<p>c</p>"]).splitlines()[-3:]
    ['<h1>a &lt; b</h1>', '<p>c</p>', '</main></body></html>']
    """
    shown = html.escape(title)
    head = [
        "<!DOCTYPE html>",
        f"<html lang='en'><head><meta charset='utf-8'><title>{shown}</title>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        f"<style>{_STYLE}{style}</style></head><body><main>",
        f"<h1>{shown}</h1>",
    ]
    return "\n".join([*head, *parts, "</main></body></html>\n"])
