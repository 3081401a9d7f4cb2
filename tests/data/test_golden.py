"""Every data set gives the same clients, bit for bit, as when golden.json was written."""

import json

import pytest

from tests.data import golden

DIGESTS = json.loads(golden.GOLDEN.read_text())


@pytest.mark.parametrize("name", golden.TABLES)
def test_a_table_gives_the_same_bits(tmp_path, name):
    assert golden.table_digest(name, tmp_path) == DIGESTS[f"table {name}"]


@pytest.mark.parametrize("form", golden.FORMS)
@pytest.mark.parametrize("name", ["mixed", "fill", "inside"])
def test_a_table_gives_the_same_bits_in_every_form(tmp_path, name, form):
    assert golden.table_digest(name, tmp_path, form) == DIGESTS[f"table {name}"]


@pytest.mark.parametrize("name", golden.MADE)
def test_made_data_gives_the_same_bits(tmp_path, name):
    assert golden.digest(golden.MADE[name](tmp_path)) == DIGESTS[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", golden.REAL)
def test_real_data_gives_the_same_bits(real_data, name):
    assert golden.digest(golden.REAL[name](real_data)) == DIGESTS[f"real {name}"]
