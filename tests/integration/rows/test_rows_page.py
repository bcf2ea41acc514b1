"""docs/proof.md and the tests that are named by the rows of the articles hold each other."""

from tests.rows import rows


def test_every_row_of_the_page_has_tests_that_are_named_by_it():
    found = rows.tests()
    wrong = []
    for row in rows.on_the_page():
        wrong += [f"{row.id}: not one of the articles' rows"] if row.id not in rows.ROWS else []
        wrong += [f"{row.id}: no test"] if not row.tests else []
        wrong += [f"{row.id}: {test} is no test of it" for test in row.tests if row.id not in found.get(test, (None, []))[1]]
    assert wrong == []


def test_every_test_that_is_named_by_a_row_is_on_the_page():
    listed = {(row.id, test) for row in rows.on_the_page() for test in row.tests}
    named = {(row, test) for test, (_, its_rows) in rows.tests().items() for row in its_rows}
    assert sorted(named - listed) == []


def test_the_page_has_each_row_once():
    ids = [row.id for row in rows.on_the_page()]
    assert sorted(set(ids)) == sorted(ids)
