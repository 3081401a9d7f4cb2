"""Audits of twelve tables: every number agrees with the first version to 1e-12.

Changed on purpose since then, and not in the file: p-values of tables with clients.
"""

import json
from pathlib import Path

import pytest

from e2fl_audit import audit
from tests.audit.tables import golden_tables

GOLDENS = json.loads((Path(__file__).parent.parent / "goldens" / "audits.json").read_text())
TABLES = golden_tables()
OPTIONS = {"auroc": {"score": "auroc"}, "two_columns": {"sensitive_features": ["group", "age"]}}


@pytest.mark.parametrize("name", TABLES)
def test_numbers_agree_with_the_first_version(name):
    result = audit(TABLES[name], **OPTIONS.get(name, {}))
    found = result.to_dict()
    ours = {}
    for table in (table for tables in result.results for table in tables):
        for row in table.rows:
            ours["/".join([table.grouping.name, table.rate.key, row.group])] = row._asdict()
    for key, rate in found["overall"].items():
        ours[f"overall/{key}"] = rate
    ours["clients"] = (found["client_spread"] or {}).get("measures") or {}
    ours["chance"] = (found["client_spread"] or {}).get("chance") or {}
    for row in found["calibration"]:
        ours[f"calibration/{row['group']}"] = row
    assert set(GOLDENS[name]) <= set(ours)
    for key, row in GOLDENS[name].items():
        expected = dict(zip(row[0].split(), row[1:], strict=True))
        assert {column: ours[key][column] for column in expected} == pytest.approx(
            expected, rel=1e-12, abs=1e-12
        ), key
