"""The elements of an HTML page, for tests of its structure."""

from html.parser import HTMLParser

VOID = {"meta", "br", "hr", "img", "wbr", "link"}


class Outline(HTMLParser):
    """Every element in order, with its attributes, its text and its ancestors."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.elements, self.open = [], []
        self.feed(html)
        self.close()
        assert self.open == [], "an element is not closed"

    def handle_starttag(self, tag, attributes):
        assert len({name for name, _ in attributes}) == len(attributes)
        item = {"tag": tag, "attributes": dict(attributes), "text": "", "inside": list(self.open)}
        self.elements.append(item)
        if tag not in VOID:
            self.open.append(item)

    def handle_endtag(self, tag):
        assert self.open.pop()["tag"] == tag

    def handle_data(self, data):
        for item in self.open:
            item["text"] += data

    def all(self, *tags):
        return [item for item in self.elements if item["tag"] in tags]

    def by_id(self):
        return {e["attributes"]["id"]: e for e in self.elements if "id" in e["attributes"]}

    @property
    def structure(self):
        return [(item["tag"], sorted(item["attributes"])) for item in self.elements]
