"""Pages for people, as the tests of this folder read them."""

import html.parser


class Page(html.parser.HTMLParser):
    """A page's text and elements, checked to be closed in order."""

    def __init__(self, text):
        super().__init__()
        self.text, self.tags, self.links, self._open = "", [], [], []
        self.handlers = []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.handlers += [name for name, _ in attributes if name.startswith("on")]
        self.links += [value for name, value in attributes if name in ("src", "href")]
        if tag not in ("meta", "br"):
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.text += data
