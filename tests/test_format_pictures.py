"""The pictures of docs/formats/: of today's arrays, complete, and on the page of their format."""

import format_pictures
import numpy as np
import pytest

ROWS, COLUMNS = format_pictures.matrix()


@pytest.mark.parametrize("name", format_pictures.PICTURES)
def test_pictures_are_up_to_date_and_shown(name):
    committed = (format_pictures.FOLDER / f"{name}.svg").read_text()
    assert format_pictures.draw(name) == committed, "python tools/format_pictures.py"
    assert f"]({name}.svg)" in (format_pictures.FOLDER / f"{name}.md").read_text()


@pytest.mark.parametrize("name", format_pictures.PICTURES)
def test_each_place_is_drawn_once_in_the_line_of_its_row(name):
    options, pieces_of = format_pictures.PICTURES[name]
    form, entries = format_pictures.stored(name, options)
    assert sorted(entries[entries > 0]) == list(range(1, ROWS.size + 1))
    places = []
    for piece in pieces_of(form):
        for line, words in zip(piece.places, piece.names, strict=True):
            here = line[line != format_pictures.NOTHING]
            places.append(here)
            rows = {int(ROWS[entry - 1]) for entry in entries[here] if entry != format_pictures.PADDING}
            assert all(words.split(",")[0] == f"row {row}" for row in rows)
    assert sorted(np.concatenate(places)) == list(range(entries.size))
